package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A number that is incremented, and how many of the increments whose end nobody knows were done.
//
// These are all alike, and each may happen at any time after it began. So it is enough to try them
// in the order in which they began: without that, the search would try all of their subsets.
type state struct {
	value   int
	unknown int
}

// A resource does one increment at a time. Each reads what the one before has written.
var resource = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, input, _ interface{}) (bool, interface{}) {
		now, what := before.(state), input.(increment)
		if what.IsKnown {
			return what.Read == now.value, state{now.value + 1, now.unknown}
		}
		return what.Unknown == now.unknown, state{now.value + 1, now.unknown + 1}
	},
	DescribeOperation: func(input, _ interface{}) string {
		if what := input.(increment); what.IsKnown {
			return fmt.Sprintf("%d → %d", what.Read, what.Read+1)
		}
		return "nobody knows"
	},
	DescribeState: func(now interface{}) string { return fmt.Sprint(now.(state).value) },
}
