package cosbench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// TestArchive checks that a run is saved with the real COSBench's layout and columns.
func TestArchive(t *testing.T) {
	m := newMemory()
	main := stage("main", `<work name="main" workers="2" totalOps="40"><operation type="read" ratio="90" config="containers=u(1,2);objects=u(1,10)"/>
<operation type="write" ratio="5" config="containers=u(1,2);objects=u(51,100);sizes=u(1,128)KB"/>
<operation type="delete" ratio="5" config="containers=u(1,2);objects=u(51,100)"/></work>`)
	result, err := drive(t, m, initial+prepared+main+`<workstage name="delay" closuredelay="1"><work type="delay"/></workstage>`, Options{Seed: 1})
	must.Succeed(t, err)
	archive := Archive{filepath.Join(t.TempDir(), "archive")}
	for _, id := range []string{"w1", "w2"} {
		entry, err := archive.Claim(result.Name)
		if err != nil || entry.ID != id {
			t.Fatal(entry, err)
		}
		must.Succeed(t, entry.SaveConfig(result.Workload))
		must.Succeed(t, entry.Save(result))
		if err := entry.Save(result); err == nil {
			t.Error("results were overwritten")
		}
	}
	folder := filepath.Join(archive.Folder, "w1-t")
	checkWorkloadTable(t, folder)
	checkSeries(t, folder)
	histogram := table2(t, filepath.Join(folder, "w1-t-rt-histogram.csv"))
	recorded := table2(t, "testdata/recorded-histogram.csv")
	if !slices.Equal(histogram[0], recorded[0]) || len(histogram) != lastBucket+2 || histogram[lastBucket+1][0] != "500000~+INF" ||
		histogram[25][0] != recorded[25][0] || histogram[lastBucket+1][2] != "100%" {
		t.Errorf("histogram %v, %d rows to %v", histogram[0], len(histogram), histogram[len(histogram)-1])
	}
	history := table2(t, filepath.Join(archive.Folder, "run-history.csv"))
	if len(history) != 3 || history[2][0] != "w2" || history[1][5] != "init prepare read write delete delay" || history[1][6] != "finished" ||
		!strings.HasPrefix(history[1][7], "queuing @ 2") {
		t.Errorf("history %v", history)
	}
	matrix := table2(t, filepath.Join(archive.Folder, "workloads.csv"))
	if len(matrix) != 11 || matrix[3][0] != "w1-s3-main-1" || matrix[4][16] != "5% containers=u(1-2) objects=u(51-100) sizes=u(1-128)KB" ||
		matrix[2][4] != "3" {
		t.Errorf("matrix %v", matrix)
	}
	if info, err := os.Stat(filepath.Join(folder, "s4-delay.csv")); err != nil || info.Size() != 0 {
		t.Error("a pause has a series", err)
	}
}

func checkWorkloadTable(t *testing.T, folder string) {
	t.Helper()
	rows, recorded := table2(t, filepath.Join(folder, "w1-t.csv")), table2(t, "testdata/recorded.csv")
	if !slices.Equal(rows[0], recorded[0]) {
		t.Errorf("columns %v", rows[0])
	}
	for i, row := range recorded[1:6] { // init to delete: the same rows, other numbers
		mine := rows[i+1]
		if !slices.Equal(mine[:3], row[:3]) || mine[15] != row[15] || mine[16] != row[16] || len(mine) != len(row) {
			t.Errorf("row %v is not like %v", mine, row)
		}
		for column := range row {
			if (row[column] == notThere) != (mine[column] == notThere) && column != 5 && column != 6 {
				t.Errorf("%s of %s: %s is not like %s", rows[0][column], row[1], mine[column], row[column])
			}
		}
		for at := 17; at < len(row); at++ {
			state, _, _ := strings.Cut(row[at], " @ ")
			_, when, found := strings.Cut(mine[at], " @ ")
			if _, err := time.Parse(dateFormat, when); !strings.HasPrefix(mine[at], state+" @ ") || !found || err != nil {
				t.Errorf("state %q is not like %q", mine[at], row[at])
			}
		}
	}
	if pause := rows[6]; pause[0] != "delay" || pause[15] != notThere || pause[16] != "completed" || len(pause) != 20 {
		t.Errorf("pause %v", pause)
	}
}

func checkSeries(t *testing.T, folder string) {
	t.Helper()
	rows, recorded := table2(t, filepath.Join(folder, "s3-main.csv")), table2(t, "testdata/recorded-series.csv")
	if !slices.Equal(rows[0], recorded[0]) || !slices.Equal(rows[1], recorded[1]) || len(rows[2]) != len(recorded[2]) {
		t.Errorf("series %v", rows)
	}
	seconds := table2(t, filepath.Join(folder, "series.csv"))
	if strings.Join(seconds[0][:9], ",") != "second,stage,op,tenant,ops,bytes,errors,mean_s,p95_s" || len(seconds) < 4 {
		t.Errorf("seconds %v", seconds)
	}
	text := must.Read(t, filepath.Join(folder, "histograms.json"))
	var file histogramFile
	must.Succeed(t, json.Unmarshal(text, &file))
	read := file.Stages[2].Operations[0]
	var n uint64
	for _, bucket := range read.Buckets {
		n += bucket[2]
	}
	if file.Seed != 1 || read.Operation != "read" || n != uint64(read.Ops) || n == 0 || read.Work != "main" || *read.P95 < *read.P50 {
		t.Errorf("%+v", read)
	}
}

// TestClaim checks that every run gets its own folder, numbered after earlier runs, at any time.
func TestClaim(t *testing.T) {
	archive := Archive{t.TempDir()}
	must.Succeed(t, os.Mkdir(filepath.Join(archive.Folder, "w7-old"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(archive.Folder, "run-history.csv"), []byte("Id,Name\nw9,gone\n"), 0o600))
	var mu sync.Mutex
	var names []string
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			entry, err := archive.Claim("x")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			names = append(names, entry.Name)
		})
	}
	all.Wait()
	slices.Sort(names)
	if want := "w10-x w11-x w12-x w13-x w14-x w15-x w16-x w17-x"; strings.Join(names, " ") != want {
		t.Error(names)
	}
}
