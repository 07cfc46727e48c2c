/* A module that makes ACL categories before redis-lock is loaded: each one that its arguments name. The word
 * `all` stands for as many as the server has room for. */
#include <stdio.h>
#include <string.h>

typedef int (*get_api_fn)(const char *name, void *into);
typedef int (*add_category_fn)(void *ctx, const char *name);
typedef const char *(*text_fn)(const void *string, size_t *length);

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    get_api_fn get_api = *(get_api_fn *)ctx;
    void (*set_attributes)(void *, const char *, int, int);
    add_category_fn add;
    text_fn text;
    char name[16];

    if (get_api("RedisModule_SetModuleAttribs", &set_attributes) || get_api("RedisModule_AddACLCategory", &add) ||
        get_api("RedisModule_StringPtrLen", &text))
        return 1;
    set_attributes(ctx, "taker", 1, 1);
    for (int i = 0; i < argc; i++) {
        const char *word = text(argv[i], NULL);
        if (strcmp(word, "all")) {
            if (add(ctx, word)) return 1;
            continue;
        }
        for (int n = 0; snprintf(name, sizeof name, "taken-%d", n) && !add(ctx, name); n++) {}
    }
    return 0;
}
