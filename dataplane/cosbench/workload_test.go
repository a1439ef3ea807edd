package cosbench

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"hotbed/dataplane/cosbench/store"
	"hotbed/dataplane/tests/must"
)

// workload returns a workload with one stage of the given works.
func workload(works string) string {
	return "<workload name=\"t\">\n<storage type=\"none\"/>\n<workflow>\n<workstage name=\"main\">\n" + works +
		"\n</workstage>\n</workflow>\n</workload>\n"
}

const reading = `<work name="m" workers="2" runtime="1"><operation type="read" config="containers=u(1,2);objects=u(1,9)"/></work>`

func plan(t *testing.T, text string) *Plan {
	t.Helper()
	w, err := Read(strings.NewReader(text))
	must.Succeed(t, err)
	p, err := MakePlan(w, store.All())
	must.Succeed(t, err)
	return p
}

// TestFaults checks that each mistake is refused with its line, element and name.
func TestFaults(t *testing.T) {
	operation := func(attributes string) string {
		return workload(`<work name="m" workers="4" runtime="1">` + "\n<operation " + attributes + "/>\n</work>")
	}
	work := func(attributes string) string {
		return workload(`<work name="m" ` + attributes + `>` + "\n" + `<operation type="read" config="containers=c(1);objects=c(1)"/></work>`)
	}
	for _, c := range []struct {
		text, element, says string
		line                int
	}{
		{"", "", "no <workload>", 0},
		{"<job/>", "", "<job> cannot be here; allowed: workload", 1},
		{"<workload name=\"t\"><workflow><workstage name=\"m\"><work type=\"init\" workers=\"1\"/></workstage></workflow></workload><workload name=\"u\"><workflow><workstage name=\"m\"><work type=\"init\" workers=\"1\"/></workstage></workflow></workload>", "", "second <workload>", 1},
		{"<workload name=\"t\">\n<workflow>", `workflow`, "not well-formed", 2},
		{"<workload name=\"t\">\n<workflow>\n</work>", `workflow`, "not well-formed", 3},
		{"<!DOCTYPE x>\n<workload/>", "", "document types", 1},
		{"<workload name=\"t\">\nhello<workflow/></workload>", `workload "t"`, "there is text", 1},
		{"<workload\nname=\"t\"></workload>", `workload "t"`, "no <workflow>", 1},
		{"<workload name=\"t\" colour=\"red\"/>", `workload "t"`, "colour is not known", 1},
		{"\xef\xbb\xbf<workload/>", "workload", "name is missing", 1},
		{"\xff\xfe<\x00w\x00", "", "not well-formed", 1},
		{"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><workload/>", "", "the encoding ISO-8859-1 is not supported", 1},
		{"<?xml version=\"1.0\" encoding=\"us-ascii\"?><workload/>", "workload", "name is missing", 1},
		{"<workload name=\"a/b\"><workflow/></workload>", `workflow`, "no <workstage>", 1},
		{strings.Replace(workload(reading), `name="t"`, `name="a/b"`, 1), `workload "a/b"`, "a character", 1},
		{strings.Replace(workload(reading), `name="main"`, `name="a;b"`, 1), `workstage "a;b"`, "a character", 4},
		{strings.Replace(workload(reading), "<workflow>", "<storage type=\"mock\"/>\n<workflow>", 1), `storage "mock"`, "second <storage>", 3},
		{strings.Replace(workload(reading), `"none"`, `"ampli"`, 1), `storage "ampli"`, `"ampli" is not supported; supported: mock`, 2},
		{strings.Replace(workload(reading), `type="none"`, `type="mock" config="sise=3"`, 1), `storage "mock"`, "key sise is not supported", 2},
		{strings.Replace(workload(reading), `type="none"`, `type="mock" config="Size=3"`, 1), `storage "mock"`, "write it size", 2},
		{strings.Replace(workload(reading), `type="none"`, `type="mock" config="size"`, 1), `storage "mock"`, "not key=value", 2},
		{workload("<run/>"), `workstage "main"`, "<run> cannot be here", 5},
		{strings.Replace(workload(reading), `type="none"`, `type="mock" config="delay=slow"`, 1), `storage "mock"`, "delay=slow is not a whole number", 2},
		{strings.Replace(workload(reading), `<storage type="none"`, `<auth type="swauth" config="auth_url=host:8080"`, 1), `auth "swauth"`, "write http://HOST:PORT/PATH", 2},
		{strings.Replace(workload(reading), `name="main"`, `name=" main"`, 1), `workstage " main"`, "begins or ends with a space", 4},
		{workload(`<work name="m" workers="4" runtime="1"/>`), `work "m"`, "there is no <operation> in it", 5},
		{work(`workers="0" runtime="1"`), `work "m"`, "workers=\"0\"", 5},
		{work(`workers="x" runtime="1"`), `work "m"`, "not a whole number", 5},
		{work(`workers="2" runtime="-1"`), `work "m"`, "not a whole number from 0", 5},
		{work(`workers="2" runtime="1" type="warm"`), `work "m"`, `"warm" is not supported`, 5},
		{work(`workers="2" runtime="1" afr="1000001"`), `work "m"`, "afr", 5},
		{work(`workers="2"`), `work "m"`, "no limit", 5},
		{work(`workers="4" totalOps="3"`), `work "m"`, "cannot be divided among 4", 5},
		{operation(`type="copy"`), `operation "copy"`, `"copy" is not supported`, 6},
		{operation(`type="read" ratio="90" config="containers=c(1);objects=c(1)"`), `work "m"`, "sum to 90", 5},
		{operation(`type="read" config="objects=c(1)"`), `operation "read"`, "containers is missing", 6},
		{operation(`type="read" config="containers=c(1);objects=u(9,1)"`), `operation "read"`, "lower one first", 6},
		{operation(`type="read" config="containers=c(1);objects=z(1,2)"`), `operation "read"`, "not a distribution", 6},
		{operation(`type="read" config="containers=c(1);objects=u(1,3)" division="object"`), `operation "read"`, "3 numbers cannot be divided among 4 workers; give them at least one each, or take another division", 6},
		{operation(`type="list" config="containers=u(1,3)" division="none"`), `operation "list"`, "at least one each (a list of whole containers always", 6},
		{operation(`type="read" config="containers=u(0,3);objects=c(1)"`), `operation "read"`, "whole numbers from 1", 6},
		{operation(`type="read" config="containers=h(1|9|1);objects=c(1)" division="container"`), `operation "read"`, "histogram cannot be divided", 6},
		{operation(`type="write" config="containers=c(1);objects=c(1)"`), `operation "write"`, "sizes is missing", 6},
		{operation(`type="write" config="containers=c(1);objects=c(1);sizes=c(1)KiB"`), `operation "write"`, "no unit that is known", 6},
		{operation(`type="write" config="containers=c(1);objects=c(1);sizes=c(1)B;content=text"`), `operation "write"`, "content=text", 6},
		{operation(`type="read" config="containers=c(1);objects=c(1);hashcheck=true"`), `operation "read"`, "write it hashCheck", 6},
		{operation(`type="list" config="objects=c(1)"`), `operation "list"`, "objects needs containers", 6},
		{workload(`<work type="prepare" workers="1" config="containers=u(1,2);objects=r(1,2);sizes=c(1)B"/>`), `prepare`, "not a range", 5},
		{strings.Replace(workload(reading), `name="main"`, `name="delay" closuredelay="1"`, 1), `work "m"`, "runs no works", 5},
	} {
		w, err := Read(strings.NewReader(c.text))
		if err == nil {
			_, err = MakePlan(w, store.All())
		}
		var fault *Fault
		if !errors.As(err, &fault) {
			t.Errorf("%s\ngave %v", c.text, err)
		} else if fault.Line != c.line || !strings.Contains(fault.Element, c.element) || !strings.Contains(fault.Message, c.says) {
			t.Errorf("%s\ngave line %d, element %s: %s\nwanted line %d, element %s: %s", c.text, fault.Line, fault.Element,
				fault.Message, c.line, c.element, c.says)
		}
	}
}

// TestInheritance checks that auth, storage and configs are inherited; a child's values win.
func TestInheritance(t *testing.T) {
	w, err := Read(strings.NewReader(`<workload name="t" config="cprefix=a;containers=c(1)">
<auth type="mock" config="token=top"/><storage type="mock" config="size=1"/>
<workflow config="oprefix=b">
<workstage name="x" config="cprefix=c"><storage type="mock" config="delay=2"/>
<work name="one" workers="2" totalOps="2" config="objects=c(1)"><operation type="read"/></work>
<work name="two" workers="1" totalOps="2" division="object"><auth type="none"/>
<operation type="read" ratio="60" config="objects=c(2);cprefix=d"/><operation type="write" ratio="0"/>
<operation type="read" ratio="40" division="none" config="objects=c(3);name=late"/></work>
</workstage>
<workstage name="y"><work type="init" workers="3" config="containers=r(1,4)"/></workstage>
</workflow></workload>`))
	must.Succeed(t, err)
	x, y := w.Stages[0], w.Stages[1]
	if got := x.Works[0].Operations[0].Config.String(); got != "cprefix=c;containers=c(1);oprefix=b;objects=c(1)" {
		t.Errorf("inherited %s", got)
	}
	two := x.Works[1]
	if two.Storage.Config.String() != "delay=2" || two.Auth.Type != "none" || x.Works[0].Auth.Config.Text("token", "") != "top" || y.Works[0].Storage.Config.String() != "size=1" {
		t.Errorf("storage and auth: %+v %+v %+v", two.Storage, two.Auth, y.Works[0].Storage)
	}
	if len(two.Operations) != 2 || two.Operations[0].Label() != "1-read-read" || two.Operations[1].Label() != "late-read" ||
		two.Operations[0].Division != "object" || two.Operations[1].Division != "none" || two.Operations[0].ID != "op2" {
		t.Errorf("operations %+v", two.Operations)
	}
	init := y.Works[0]
	if init.TotalOps != 3 || init.AFR != 0 || two.AFR != 200_000 || init.Division != "container" || init.Name != "init" ||
		init.Operations[0].Label() != "init-write" ||
		init.Operations[0].Config.String() != "objects=r(0,0);sizes=c(0)B;cprefix=a;containers=r(1,4);oprefix=b" {
		t.Errorf("init %+v", init)
	}
}

// written returns a workload as XML.
func written(t *testing.T, w *Workload) string {
	t.Helper()
	text, err := xml.MarshalIndent(w, "", "    ")
	must.Succeed(t, err)
	return string(text)
}

// FuzzRead checks that nothing panics and that a workload survives writing and rereading.
func FuzzRead(f *testing.F) {
	recorded := must.Read(f, "testdata/recorded-config.xml")
	f.Add(string(recorded))
	f.Add(workload(reading))
	f.Add(workload(`<work type="delay"/><work name="a&amp;b" workers="1" totalBytes="9" driver="d" config="=;"><operation type="list"/></work>`))
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Read(strings.NewReader(text))
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) || fault.Message == "" {
				t.Fatalf("%v is no fault", err)
			}
			return
		}
		_, _ = MakePlan(w, store.All()) // must not panic
		once := written(t, w)
		again, err := Read(strings.NewReader(once))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if twice := written(t, again); once != twice {
			t.Errorf("written, read and written again:\n%s\n%s", once, twice)
		}
	})
}

// TestSecretsAreMasked checks each form in which a workload is shown.
func TestSecretsAreMasked(t *testing.T) {
	text := `<workload name="t"><auth type="swauth" config="username=u;password=hunter2;auth_url=http://h/"/>
<storage type="s3" config="accesskey=AKIA;secretkey=hunter2;endpoint=http://h"/><workflow>
<workstage name="m">` + reading + `</workstage></workflow></workload>`
	w, err := Read(strings.NewReader(text))
	must.Succeed(t, err)
	out := written(t, w)
	for _, secret := range []string{"hunter2", "AKIA"} {
		if strings.Contains(out, secret) {
			t.Errorf("%s is in\n%s", secret, out)
		}
	}
	if !strings.Contains(out, `config="username=u;password=***;auth_url=http://h/"`) {
		t.Errorf("more than secrets is masked:\n%s", out)
	}
	if w.Auth.Config.Text("password", "") != "hunter2" {
		t.Error("the password itself is lost")
	}
}
