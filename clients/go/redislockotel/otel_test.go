package redislockotel

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
	"github.com/redis-lock/redis-lock/clients/go/driver"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A server grants everything, and knows of no hold that is to be renewed.
type server struct{ null bool }

func (s *server) Send(_ context.Context, commands ...driver.Command) []driver.Reply {
	reply := driver.Reply{Value: int64(7)}
	switch {
	case commands[0].Args[0] == "LOCK.RENEW":
		reply.Value = int64(0)
	case s.null:
		reply.Value = nil
	}
	return []driver.Reply{reply}
}

func (s *server) Open(context.Context, string) (driver.Conn, error) { return nil, driver.ErrNotSent }
func (s *server) Close() error                                      { return nil }

func TestSpansAndMeasures(t *testing.T) {
	ctx := context.Background()
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	server := &server{}
	client := &core.Client{Driver: server}
	client.Observer = NewWith(trace.NewTracerProvider(trace.WithSyncer(spans)), metric.NewMeterProvider(metric.WithReader(reader)))
	lock := client.Lock("a")
	hold, err := lock.TryAcquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = hold.Release(ctx)
	if hold, err = lock.TryAcquire(ctx); err != nil {
		t.Fatal(err)
	}
	_, _ = hold.Renew(ctx) // It is lost.
	server.null = true
	_, _ = lock.TryAcquire(ctx)
	gone, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	_, _ = lock.TryAcquire(gone)

	story := ""
	for _, span := range spans.GetSpans() {
		story += fmt.Sprintln(span.Name, span.Status.Code)
	}
	wait, held := "redis_lock.wait Unset\n", "redis_lock.hold Unset\n"
	if want := wait + held + wait + "redis_lock.hold Error\n" + wait + "redis_lock.wait Error\n"; story != want {
		t.Fatalf("%s instead of\n%s", story, want)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, measure := range data.ScopeMetrics[0].Metrics {
		switch points := measure.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, point := range points.DataPoints {
				counts[measure.Name] += point.Count
			}
		case metricdata.Sum[int64]:
			counts[measure.Name] = uint64(points.DataPoints[0].Value)
		}
	}
	want := "map[redis_lock.hold.duration:2 redis_lock.losses:1 redis_lock.wait.duration:4]"
	if got := fmt.Sprint(counts); got != want {
		t.Fatal(got)
	}
}
