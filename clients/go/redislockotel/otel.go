// Package redislockotel traces and measures redislock by the API of OpenTelemetry.
//
//	locks, err := redislock.Open(client, redislock.WithObserver(redislockotel.New()))
//
// It makes a span for each wait (redis_lock.wait) and one for each hold (redis_lock.hold), histograms of both in seconds
// (redis_lock.wait.duration, redis_lock.hold.duration), and a counter of the holds that nobody has released (redis_lock.losses). The
// spans have the names of the locks, the measures have not: there may be too many.
package redislockotel

import (
	"context"
	"errors"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/redis-lock/redis-lock/clients/go"

type observer struct {
	tracer trace.Tracer
	waits  metric.Float64Histogram
	holds  metric.Float64Histogram
	losses metric.Int64Counter
}

// New returns an observer that uses the global providers of OpenTelemetry.
func New() core.Observer { return NewWith(otel.GetTracerProvider(), otel.GetMeterProvider()) }

// NewWith returns an observer that uses these providers.
func NewWith(traces trace.TracerProvider, metrics metric.MeterProvider) core.Observer {
	meter := metrics.Meter(scope)
	seconds := metric.WithUnit("s")
	o := &observer{tracer: traces.Tracer(scope)}
	// An instrument whose making fails does nothing, and the error has gone to OpenTelemetry's handler.
	o.waits, _ = meter.Float64Histogram("redis_lock.wait.duration", seconds, metric.WithDescription("How long acquires took."))
	o.holds, _ = meter.Float64Histogram("redis_lock.hold.duration", seconds, metric.WithDescription("How long locks were held."))
	o.losses, _ = meter.Int64Counter("redis_lock.losses", metric.WithDescription("Holds that ended without a release."))
	return o
}

func (o *observer) Waits(ctx context.Context, names []string) (context.Context, func(error)) {
	begun := time.Now()
	within, span := o.tracer.Start(ctx, "redis_lock.wait", trace.WithAttributes(attribute.StringSlice("redis_lock.names", names)))
	return within, func(err error) {
		outcome := attribute.String("redis_lock.outcome", "granted")
		switch {
		case errors.Is(err, &core.ErrTaken{}):
			outcome = attribute.String("redis_lock.outcome", "taken")
		case err != nil:
			outcome = attribute.String("redis_lock.outcome", "failed")
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.SetAttributes(outcome)
		span.End()
		o.waits.Record(context.WithoutCancel(within), time.Since(begun).Seconds(), metric.WithAttributes(outcome))
	}
}

func (o *observer) Holds(ctx context.Context, names []string, fence int64) func(bool) {
	begun := time.Now()
	ctx = context.WithoutCancel(ctx)
	// The wait is over when the hold begins: it is a link, and not the parent.
	within, span := o.tracer.Start(ctx, "redis_lock.hold", trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)),
		trace.WithAttributes(attribute.StringSlice("redis_lock.names", names), attribute.Int64("redis_lock.fence", fence)))
	return func(lost bool) {
		if lost {
			span.SetStatus(codes.Error, core.ErrNotHeld.Error())
			o.losses.Add(within, 1)
		}
		span.End()
		o.holds.Record(within, time.Since(begun).Seconds(), metric.WithAttributes(attribute.Bool("redis_lock.lost", lost)))
	}
}
