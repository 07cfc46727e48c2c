/* A module that reacts to events of keys. `react event key command ...`, as a command or as the arguments of the
 * module, runs the command when the event comes next. The command `pause` takes so many milliseconds. */
#include <string.h>
#include <time.h>

#define MOST 8

typedef int (*get_api_fn)(const char *name, void *into);
typedef void *(*call_fn)(void *ctx, const char *command, const char *format, ...);
typedef const char *(*text_fn)(const void *string, size_t *length);
typedef int (*simple_fn)(void *ctx, const char *text);
typedef void (*hold_fn)(void *ctx, void *string);
typedef int (*free_fn)(void *reply);
typedef int (*number_fn)(const void *string, long long *number);

static call_fn call;
static text_fn text;
static simple_fn reply_with;
static hold_fn hold;
static free_fn free_reply;
static number_fn number;

static struct reaction {
    void *words[16];
    int count;
} reactions[MOST];

static int react(void *ctx, void **words, int count) {
    for (int n = 0; n < MOST; n++) {
        struct reaction *free_one = &reactions[n];
        if (free_one->count) continue;
        if (count < 3 || count > 16) break;
        for (int at = 0; at < count; at++) {
            hold(ctx, words[at]);
            free_one->words[at] = words[at];
        }
        free_one->count = count;
        return 0;
    }
    return 1;
}

static int on_command(void *ctx, void **argv, int argc) {
    return reply_with(ctx, react(ctx, argv + 1, argc - 1) ? "FULL" : "OK");
}

static void pause_ms(long long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static int on_event(void *ctx, int type, const char *event, void *key) {
    (void)type;
    for (int n = 0; n < MOST; n++) {
        struct reaction it = reactions[n];
        long long ms;
        if (!it.count || strcmp(event, text(it.words[0], NULL)) || strcmp(text(key, NULL), text(it.words[1], NULL)))
            continue;
        reactions[n].count = 0;
        if (!strcmp(text(it.words[2], NULL), "pause")) {
            if (!number(it.words[3], &ms)) pause_ms(ms);
            continue;
        }
        void *reply = call(ctx, text(it.words[2], NULL), "!v", it.words + 3, (size_t)(it.count - 3));
        if (reply) free_reply(reply);
    }
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    get_api_fn get_api = *(get_api_fn *)ctx;
    void (*set_attributes)(void *, const char *, int, int);
    int (*create)(void *, const char *, int (*)(void *, void **, int), const char *, int, int, int);
    int (*subscribe)(void *, int, int (*)(void *, int, const char *, void *));
    /* Strings, keys that expire, events of modules, and new keys. */
    const int types = 1 << 3 | 1 << 8 | 1 << 13 | 1 << 14;

    if (get_api("RedisModule_SetModuleAttribs", &set_attributes) || get_api("RedisModule_Call", &call) ||
        get_api("RedisModule_StringPtrLen", &text) || get_api("RedisModule_ReplyWithSimpleString", &reply_with) ||
        get_api("RedisModule_RetainString", &hold) || get_api("RedisModule_FreeCallReply", &free_reply) ||
        get_api("RedisModule_StringToLongLong", &number) || get_api("RedisModule_CreateCommand", &create) ||
        get_api("RedisModule_SubscribeToKeyspaceEvents", &subscribe))
        return 1;
    set_attributes(ctx, "reactor", 1, 1);
    if (argc && react(ctx, argv, argc)) return 1;
    return subscribe(ctx, types, on_event) || create(ctx, "react", on_command, "write", 0, 0, 0);
}
