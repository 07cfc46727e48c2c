package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lines of "at who what text".
func journal(t *testing.T, lines ...string) string {
	t.Helper()
	var text strings.Builder
	for _, one := range lines {
		words := strings.SplitN(one, " ", 4)
		fmt.Fprintf(&text, "{\"at\":%s,\"who\":%q,\"to\":7001,\"what\":%q,\"text\":%q}\n",
			words[0], words[1], words[2], words[3])
	}
	path := filepath.Join(t.TempDir(), "round-1.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func expect(t *testing.T, code int, word string, lines ...string) {
	t.Helper()
	var out bytes.Buffer
	if got := judge([]string{journal(t, lines...)}, 10*time.Second, "", &out); got != code {
		t.Errorf("the exit code is %d, not %d: %s", got, code, &out)
	}
	if !strings.Contains(out.String(), "\t"+word+"\t") {
		t.Errorf("no %q in %q", word, &out)
	}
}

func TestIncrementsOneAfterTheOtherAreFine(t *testing.T) {
	expect(t, fine, "fine",
		"10 c1 op increment fenced:k1", "20 c1 done 0",
		"30 c2 op increment fenced:k1", "31 c3 op increment fenced:k1",
		"40 c3 done 1", "41 c2 done 2",
		"42 c1 op increment fenced:k2", "43 c1 done 0",
		"50 c1 op increment fenced:k1", "51 c2 op increment fenced:k1",
		"60 c1 done rejected", "61 c2 done none",
		"70 c1 op increment fenced:k1", "80 c1 done 3")
}

func TestALostUpdateIsBroken(t *testing.T) {
	expect(t, broken, "broken",
		"10 c1 op increment fenced:k1", "11 c2 op increment fenced:k1",
		"20 c1 done 0", "21 c2 done 0")
}

func TestAValueOutOfItsTimeIsBroken(t *testing.T) {
	// The second began when the first had ended.
	expect(t, broken, "broken",
		"10 c1 op increment fenced:k1", "20 c1 done 1",
		"30 c2 op increment fenced:k1", "40 c2 done 0")
}

func TestAnIncrementOfNobodyIsBroken(t *testing.T) {
	expect(t, broken, "broken",
		"10 c1 op increment counter:k1", "20 c1 done 0",
		"21 c3 op increment counter:k1", "22 c3 done none",
		"30 c2 op increment counter:k1", "40 c2 done 2")
}

func TestWhatWasNotDoneMustNotShow(t *testing.T) {
	expect(t, broken, "broken",
		"10 c1 op increment fenced:k1", "20 c1 done rejected",
		"30 c2 op increment fenced:k1", "40 c2 done 1")
}

func TestAnUnknownEndMayComeLaterOrNever(t *testing.T) {
	lost := []string{"10 c1 op increment fenced:k1", "20 c1 done unknown"}
	before := []string{"30 c2 op increment fenced:k1", "40 c2 done 0"}
	after := []string{"50 c2 op increment fenced:k1", "60 c2 done 2"}
	expect(t, fine, "fine", append(lost, before...)...)
	expect(t, fine, "fine", append(append(lost, before...), after...)...)
	// Once, and not twice.
	expect(t, broken, "broken", append(append(lost, before...), "50 c2 op increment fenced:k1", "60 c2 done 3")...)
	// And not before it began.
	expect(t, broken, "broken",
		"1 c2 op increment fenced:k1", "2 c2 done 1",
		"10 c1 op increment fenced:k1", "20 c1 done unknown")
	// The round has ended before the client.
	expect(t, fine, "fine", "10 c1 op increment fenced:k1", "30 c2 op increment fenced:k1", "40 c2 done 1")
}

func TestASearchThatTakesTooLongIsUndecided(t *testing.T) {
	// Many at once, in no order: one value stands twice, at the end.
	random := rand.New(rand.NewSource(1))
	var lines []string
	const many = 60
	for n := 0; n < many; n++ {
		lines = append(lines, fmt.Sprintf("%d c%d op increment fenced:k1", n, n))
	}
	for n, client := range random.Perm(many) {
		lines = append(lines, fmt.Sprintf("%d c%d done %d", 100+n, client, n-n/(many-1)))
	}
	for n := 0; n < many; n++ {
		lines = append(lines, fmt.Sprintf("%d u%d op increment fenced:k1", n, n))
	}
	var out bytes.Buffer
	path := journal(t, lines...)
	if code := judge([]string{path}, time.Nanosecond, "", &out); code != undecided {
		t.Errorf("the exit code is %d: %s", code, &out)
	}
	if !strings.Contains(out.String(), "\tundecided\t") || strings.Contains(out.String(), "fine") {
		t.Errorf("%s", &out)
	}
}

func TestAJournalThatCannotBeReadIsAnError(t *testing.T) {
	for _, lines := range [][]string{
		{"10 c1 op increment fenced:k1", "20 c1 op increment fenced:k1"},
		{"10 c1 done 1"},
		{"10 c1 op increment fenced:k1", "20 c1 done maybe"},
		{"10 c1 op decrement fenced:k1"},
		{"x c1 op increment fenced:k1"},
	} {
		var out bytes.Buffer
		if code := judge([]string{journal(t, lines...)}, time.Second, "", &out); code != unreadable {
			t.Errorf("%q: the exit code is %d", lines, code)
		}
	}
	if code := judge([]string{"no such file"}, time.Second, "", os.Stdout); code != unreadable {
		t.Errorf("the exit code is %d", code)
	}
}

// Whoever wrote it has died.
func TestALastLineThatIsCutIsLeftOut(t *testing.T) {
	path := journal(t, "10 c1 op increment fenced:k1", "20 c1 done 0")
	text, _ := os.ReadFile(path)
	os.WriteFile(path, append(text, `{"at":30,"who":"c2","to":7001,"wh`...), 0o600)
	var out bytes.Buffer
	if code := judge([]string{path}, time.Second, "", &out); code != fine {
		t.Errorf("the exit code is %d", code)
	}
}

func TestWhatIsBrokenIsDrawn(t *testing.T) {
	path := journal(t, "10 c1 op increment fenced:k1", "11 c2 op increment fenced:k1",
		"20 c1 done 0", "21 c2 done 0")
	into := t.TempDir()
	var out bytes.Buffer
	judge([]string{path}, time.Second, into, &out)
	page, err := os.ReadFile(filepath.Join(into, "round-1-fenced-k1.html"))
	if err != nil || !bytes.Contains(page, []byte("0 → 1")) {
		t.Errorf("no picture: %v", err)
	}
}
