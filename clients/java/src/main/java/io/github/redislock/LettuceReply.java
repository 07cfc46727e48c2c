package io.github.redislock;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;

import java.util.List;

/** Of any command: a number, a string, null, or a list of such. Maps are flat lists. */
final class LettuceReply extends NestedMultiOutput<String, String> {
    private boolean isList;

    LettuceReply() {
        super(StringCodec.UTF8);
    }

    @Override
    public void set(boolean yes) {
        set(yes ? 1 : 0);
    }

    @Override
    public void multi(int count) {
        isList = true;
        super.multi(count);
    }

    Object value(List<Object> values) {
        return isList || values == null || values.isEmpty() ? values : values.get(0);
    }
}
