package core

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

func TestTheTableOfErrorWordsIsThatOfAllAdapters(t *testing.T) {
	text, err := os.ReadFile("../../vectors/errors.txt")
	names := map[string]Class{"temporary": Temporary, "elsewhere": Elsewhere}
	table := map[string]Class{}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] != "final" {
			table[fields[0]] = names[fields[1]]
		}
	}
	if err != nil || !maps.Equal(words, table) {
		t.Errorf("%v: %v, and not %v", err, words, table)
	}
	for reply, want := range map[driver.Reply]Class{
		{Value: int64(0)}: Answered, {Value: "OK"}: Answered, {}: Answered, refusal("BUSY some text"): Temporary, refusal("OOM"): Temporary,
		refusal("NOPERM"): Final, refusal("NEWWORD nobody knows it"): Final, refusal(""): Final,
		{Err: os.ErrClosed}: Unheard, {Err: driver.ErrNotSent}: Unheard,
	} {
		if got := ClassOf(reply); got != want {
			t.Errorf("%v: %v", reply, got)
		}
	}
}

func TestACommandThatNobodyKnowsIsToldInEveryWording(t *testing.T) {
	text, err := os.ReadFile("../../vectors/unknown.txt")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	for _, line := range lines {
		says, text, _ := strings.Cut(line, " ")
		for _, text := range []string{text, strings.TrimPrefix(text, "ERR ")} { // rueidis cuts it off
			if got := lacks(driver.Error(text), "LOCK.ACQUIRE"); got != (says == "lacks") || err != nil {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
}

func refusal(text string) driver.Reply { return driver.Reply{Err: driver.Error(text)} }
