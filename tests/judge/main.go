// Judge decides by porcupine, a checker of other people, whether the journals of a campaign are
// linearizable: whether each resource could have done its increments one after the other.
//
// The journals are those of `make campaign`. It prints a line for each resource of each journal:
//
//	journal  resource  increments  of unknown end  verdict  ms
//
// The verdict is "fine", "broken", or "undecided" where the search took too long. The exit code
// tells the worst of them: 0 fine, 1 broken, 3 undecided; 2 says that a journal cannot be read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	fine       = 0
	broken     = 1
	unreadable = 2
	undecided  = 3
)

var words = map[porcupine.CheckResult]string{
	porcupine.Ok:      "fine",
	porcupine.Illegal: "broken",
	porcupine.Unknown: "undecided",
}

func main() {
	limit := flag.Duration("limit", time.Minute, "how long the search for one resource may take")
	into := flag.String("into", "", "a folder for pictures of what is broken")
	flag.Parse()
	os.Exit(judge(flag.Args(), *limit, *into, os.Stdout))
}

// Broken is worse than unreadable, and that is worse than undecided.
func worse(one, other int) int {
	for _, code := range []int{broken, unreadable, undecided} {
		if one == code || other == code {
			return code
		}
	}
	return fine
}

func judge(paths []string, limit time.Duration, into string, out io.Writer) int {
	code := fine
	if len(paths) == 0 {
		fmt.Fprintln(os.Stderr, "judge: no journal")
		return unreadable
	}
	for _, path := range paths {
		journal, err := os.ReadFile(path)
		if err == nil {
			var found map[string][]porcupine.Operation
			if found, err = operations(journal); err == nil {
				code = worse(code, judgeAll(found, path, limit, into, out))
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "judge: %s: %v\n", path, err)
			code = worse(code, unreadable)
		}
	}
	return code
}

func judgeAll(found map[string][]porcupine.Operation, path string, limit time.Duration, into string, out io.Writer) int {
	code := fine
	var names []string
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	stem := strings.TrimSuffix(filepath.Base(path), ".jsonl")
	for _, name := range names {
		history, unknown := found[name], 0
		for _, one := range history {
			if !one.Input.(increment).IsKnown {
				unknown++
			}
		}
		start := time.Now()
		result, info := porcupine.CheckOperationsVerbose(resource, history, limit)
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%s\t%d\n", stem, name, len(history), unknown,
			words[result], time.Since(start).Milliseconds())
		switch result {
		case porcupine.Illegal:
			code = worse(code, broken)
			if into != "" {
				file := stem + "-" + strings.ReplaceAll(name, ":", "-") + ".html"
				if err := porcupine.VisualizePath(resource, info, filepath.Join(into, file)); err != nil {
					fmt.Fprintf(os.Stderr, "judge: %v\n", err)
				}
			}
		case porcupine.Unknown:
			code = worse(code, undecided)
		}
	}
	return code
}
