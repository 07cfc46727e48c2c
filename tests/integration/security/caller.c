/* A module that calls commands for nobody: by the command caller.call, and where a key `run` is written. */
#include <string.h>

typedef int (*get_api_fn)(const char *name, void *into);
typedef void *(*call_fn)(void *ctx, const char *command, const char *format, ...);
typedef const char *(*text_fn)(const void *string, size_t *length);
typedef int (*reply_fn)(void *ctx, void *reply);
typedef int (*free_fn)(void *reply);

static call_fn call;
static text_fn text;
static reply_fn reply_with;
static free_fn free_reply;

static int on_command(void *ctx, void **argv, int argc) {
    void *reply = call(ctx, text(argv[1], NULL), "v", argv + 2, (size_t)(argc - 2));
    if (!reply) return 0;
    reply_with(ctx, reply);
    free_reply(reply);
    return 0;
}

static int on_key(void *ctx, int type, const char *event, void *key) {
    (void)type, (void)event;
    if (strcmp(text(key, NULL), "run")) return 0;
    void *replies[] = {
        call(ctx, "LOCK.ACQUIRE", "ccccc", "held", "them", "30000", "KEEP", "60000"),
        call(ctx, "LOCK.ACQUIRE", "cccccc", "held", "they", "30000", "NOTIFY", "60000", "channel"),
        call(ctx, "LOCK.EXEC", "ccccc", "held", "them", "SET", "x", "1"),
    };
    for (size_t n = 0; n < sizeof replies / sizeof *replies; n++)
        if (replies[n]) free_reply(replies[n]);
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    get_api_fn get_api = *(get_api_fn *)ctx;
    void (*set_attributes)(void *, const char *, int, int);
    int (*create)(void *, const char *, int (*)(void *, void **, int), const char *, int, int, int);
    int (*subscribe)(void *, int, int (*)(void *, int, const char *, void *));

    (void)argv, (void)argc;
    if (get_api("RedisModule_SetModuleAttribs", &set_attributes) || get_api("RedisModule_Call", &call) ||
        get_api("RedisModule_StringPtrLen", &text) || get_api("RedisModule_ReplyWithCallReply", &reply_with) ||
        get_api("RedisModule_FreeCallReply", &free_reply) || get_api("RedisModule_CreateCommand", &create) ||
        get_api("RedisModule_SubscribeToKeyspaceEvents", &subscribe))
        return 1;
    set_attributes(ctx, "caller", 1, 1);
    /* The notification of strings. */
    return subscribe(ctx, 1 << 3, on_key) || create(ctx, "caller.call", on_command, "write", 0, 0, 0);
}
