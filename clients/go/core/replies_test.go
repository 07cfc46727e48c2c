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
		{Value: int64(0)}: Answered, {Value: "OK"}: Answered, {}: Null, refusal("BUSY some text"): Temporary, refusal("OOM"): Temporary,
		refusal("NOPERM"): Final, refusal("NEWWORD nobody knows it"): Final, refusal(""): Final,
		{Err: os.ErrClosed}: Unheard, {Err: driver.ErrNotSent}: Unheard,
	} {
		if got := ClassOf(reply); got != want {
			t.Errorf("%v: %v", reply, got)
		}
	}
}

func TestACommandThatNobodyKnowsIsToldInEveryWording(t *testing.T) {
	for text, want := range map[string]bool{
		"ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'a'":  true,
		"ERR unknown command `lock.acquire`, with args beginning with: ":     true,
		"ERR Command is not available: 'LOCK.ACQUIRE'. See https://":         true,
		"ERR unsupported command 'lock.acquire'":                             true,
		"ERR command not supported":                                          true,
		"unknown command 'LOCK.ACQUIRE', with args":                          true, // rueidis cuts the ERR off
		"unsupported command":                                                true,
		"ERR unknown option, expected LIMIT, BLOCK or KEEP":                  false,
		"ERR unknown command 'FOO', with args beginning with: ":              false, // the inner one of LOCK.EXEC
		"NOPERM User x has no permissions to run the 'lock.acquire' command": false,
		"BUSY Redis is busy, and the command is not available":               false,
	} {
		if got := lacks(driver.Error(text), "LOCK.ACQUIRE"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func refusal(text string) driver.Reply { return driver.Reply{Err: driver.Error(text)} }
