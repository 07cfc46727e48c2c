package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A line of a journal. tests/campaign/journal.rs tells of the format.
type line struct {
	At   int64  `json:"at"`
	Who  string `json:"who"`
	What string `json:"what"`
	Text string `json:"text"`
}

// An increment of a resource, as its client saw it.
type increment struct {
	// The value that it has read, if it was certainly done.
	Read    int
	IsKnown bool
	// Its place among those of the resource whose end nobody knows.
	Unknown int
}

// The increments of each resource: those that were done, and those that may have been done, perhaps
// later. Those that were certainly not done are left out.
func operations(journal []byte) (map[string][]porcupine.Operation, error) {
	lines, err := parse(journal)
	if err != nil {
		return nil, err
	}
	found := map[string][]porcupine.Operation{}
	unknown := map[string]int{}
	clients := map[string]int{}
	open := map[string]line{}
	add := func(begin line, end int64, what increment) {
		resource := strings.TrimPrefix(begin.Text, "increment ")
		if !what.IsKnown {
			what.Unknown = unknown[resource]
			unknown[resource]++
		}
		found[resource] = append(found[resource], porcupine.Operation{
			ClientId: clients[begin.Who], Input: what, Call: begin.At, Return: end,
		})
	}
	var never []line
	for _, one := range lines {
		if _, has := clients[one.Who]; !has {
			clients[one.Who] = len(clients)
		}
		switch one.What {
		case "op":
			if !strings.HasPrefix(one.Text, "increment ") {
				return nil, fmt.Errorf("an op that is no increment: %q", one.Text)
			}
			if _, has := open[one.Who]; has {
				return nil, fmt.Errorf("%s begins a second op at %d", one.Who, one.At)
			}
			open[one.Who] = one
		case "done":
			begin, has := open[one.Who]
			if !has {
				return nil, fmt.Errorf("%s ends an op at %d that has not begun", one.Who, one.At)
			}
			delete(open, one.Who)
			switch one.Text {
			case "rejected", "none":
			case "unknown":
				never = append(never, begin)
			default:
				read, err := strconv.Atoi(one.Text)
				if err != nil {
					return nil, fmt.Errorf("%s has read %q at %d", one.Who, one.Text, one.At)
				}
				add(begin, one.At, increment{Read: read, IsKnown: true})
			}
		}
	}
	for _, begin := range open {
		never = append(never, begin)
	}
	sort.Slice(never, func(a, b int) bool { return never[a].At < never[b].At })
	for _, begin := range never {
		add(begin, math.MaxInt64, increment{})
	}
	return found, nil
}

// The lines in the order of their times. A last line that is not whole is left out: whoever wrote it
// has died.
func parse(journal []byte) ([]line, error) {
	if end := bytes.LastIndexByte(journal, '\n'); end >= 0 {
		journal = journal[:end]
	} else {
		journal = nil
	}
	var lines []line
	for number, text := range bytes.Split(journal, []byte("\n")) {
		if len(text) == 0 {
			continue
		}
		var one line
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		lines = append(lines, one)
	}
	sort.SliceStable(lines, func(a, b int) bool { return lines[a].At < lines[b].At })
	return lines, nil
}
