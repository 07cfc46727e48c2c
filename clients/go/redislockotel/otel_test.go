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

// A server says this.
type server struct {
	driver.Driver
	says any
}

func (s *server) Send(context.Context, ...driver.Command) []driver.Reply {
	return []driver.Reply{{Value: s.says}}
}

func TestSpansAndMeasures(t *testing.T) {
	ctx := context.Background()
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	server := &server{says: int64(7)}
	client := &core.Client{Driver: server}
	client.Observer = NewWith(trace.NewTracerProvider(trace.WithSyncer(spans)), metric.NewMeterProvider(metric.WithReader(reader)))
	lock := client.Lock("a")
	hold, _ := lock.TryAcquire(ctx)
	_, _ = hold.Release(ctx)
	hold, _ = lock.TryAcquire(ctx)
	server.says = int64(0)
	_, _ = hold.Renew(ctx) // It is lost.
	server.says = nil
	_, _ = lock.TryAcquire(ctx)
	gone, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	_, _ = lock.TryAcquire(gone)

	story := ""
	for _, span := range spans.GetSpans() {
		story += fmt.Sprint(span.Name[len("redis_lock."):], " ", span.Status.Code, ", ")
	}
	if want := "wait Unset, hold Unset, wait Unset, hold Error, wait Unset, wait Error, "; story != want {
		t.Fatalf("%s instead of\n%s", story, want)
	}
	var data metricdata.ResourceMetrics
	_ = reader.Collect(ctx, &data)
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
	if got := fmt.Sprint(counts); got != "map[redis_lock.hold.duration:2 redis_lock.losses:1 redis_lock.wait.duration:4]" {
		t.Fatal(got)
	}
}
