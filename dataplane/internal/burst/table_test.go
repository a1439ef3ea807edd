package burst

import (
	"hotbed/dataplane/tests/servertest"
	"strings"
	"testing"
)

func TestATableIsTimedWhileItChanges(t *testing.T) {
	const agents = 4
	c := servertest.Start(t, agents, servertest.Unmaintained).Cluster
	got, err := Table(t.Context(), c, TableOptions{Writers: 3, Writes: 60, Samples: 5, Object: 64 << 10, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 5 || got.Queries != 60 || got.Creates < 10 || got.Creates > 60 {
		t.Errorf("%+v", got)
	}
	creates := 0
	for i, row := range got.Rows {
		creates += row.Creates
		if row.Entries < 1 || row.Entries > 200 || row.Query <= 0 || row.Pieces < 1 || (i > 0 && row.Writes <= got.Rows[i-1].Writes) {
			t.Errorf("row %d is %+v", i, row)
		}
	}
	if creates != got.Creates || got.CreateMax <= 0 || got.QueryMax <= 0 {
		t.Errorf("%d creates in rows of %+v", creates, got)
	}
}

func TestTableOptionsThatCannotBeAreOneSentence(t *testing.T) {
	for want, o := range map[string]TableOptions{
		"0 writers":            {Writes: 1, Samples: 1, Object: 1 << 20},
		"2 writes and 3 sampl": {Writers: 1, Writes: 2, Samples: 3, Object: 1 << 20},
		"the object has 1":     {Writers: 1, Writes: 2, Samples: 1, Object: 1},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted %q, got %v", want, err)
		}
	}
}
