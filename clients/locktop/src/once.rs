//! One look, printed: as a table or as JSON.

use serde_json::{json, Map, Value};

use crate::model::lock::Lock;
use crate::model::past::{Asked, Contended, Forced};
use crate::model::{Model, Order, Row, Server, State};
use crate::text::escape;
use crate::view::tables;

pub(crate) fn table(model: &Model) -> String {
    let order = Order::default();
    let rows = model.rows(&order);
    let mut text = tables::servers(model).plain();
    for (_, note) in tables::notes(model) {
        text.push_str(&note);
        text.push('\n');
    }
    text.push('\n');
    let has_answered = |server: &Server| server.snapshot().is_some();
    if !model.servers.iter().any(has_answered) {
        text.push_str("No server has answered.\n");
    } else if rows.is_empty() {
        text.push_str("Nobody waits for a lock.\n");
    } else {
        text.push_str(&tables::locks(&rows, &order, true).plain());
    }
    text
}

/// The version of the document's shape. A change that breaks a reader raises it; a new field does
/// not.
const SHAPE: u32 = 1;

pub(crate) fn json(model: &Model) -> Value {
    let rows = model.rows(&Order::default());
    json!({
        "version": SHAPE,
        "servers": model.servers.iter().map(server).collect::<Vec<_>>(),
        "locks": rows.iter().map(lock).collect::<Vec<_>>(),
        "contended": model.contended().into_iter().map(contended).collect::<Vec<_>>(),
        "log": model.log().into_iter().map(forced).collect::<Vec<_>>(),
    })
}

fn server(server: &Server) -> Value {
    let error = match &server.state {
        State::Down(error) => error.as_str(),
        State::Connecting => "it has not answered",
        State::Up(_) => "",
    };
    let Some(snapshot) = server.snapshot() else {
        return json!({ "address": server.name, "up": false, "error": error });
    };
    let info = &snapshot.info;
    let text = |text: &str| (!text.is_empty()).then(|| escape(text.as_bytes()));
    let fields = info
        .fields
        .iter()
        .map(|(name, n)| (escape(name.as_bytes()), json!(n)));
    json!({
        "address": server.name,
        "up": true,
        "error": null,
        "role": text(&info.role),
        "server": text(&info.server),
        "module": info.module,
        "guard": text(&info.guard),
        "notes": snapshot.notes,
        "info": fields.collect::<Map<_, _>>(),
        "contended_error": refusal(&snapshot.contended),
        "log_error": refusal(&snapshot.log),
    })
}

fn refusal<T>(asked: &Asked<T>) -> Option<&String> {
    asked.as_ref().and_then(|answer| answer.as_ref().err())
}

fn contended((server, key): (&str, &Contended)) -> Value {
    json!({
        "server": server,
        "db": key.place.db,
        "key": escape(&key.place.key),
        "waits": key.waits,
        "waited_ms": key.waited_ms,
        "longest_ms": key.longest_ms,
        "error_ms": key.error_ms,
    })
}

fn forced((server, entry): (&str, &Forced)) -> Value {
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(escape);
    json!({
        "server": server,
        "time_ms": entry.time_ms,
        "age_ms": entry.age_ms,
        "db": entry.db,
        "key": bytes(&entry.key),
        "token": bytes(&entry.token),
        "fence": entry.fence,
        "holders": entry.holders,
        "by": entry.by,
        "user": entry.user,
        "address": entry.address,
        "client": entry.client,
        "name": entry.name,
    })
}

fn lock(row: &Row<'_>) -> Value {
    let Lock {
        place,
        mode,
        holders,
        waiters,
        waited_ms,
        oldest,
    } = row.lock;
    let oldest = oldest.as_ref().map(|oldest| {
        json!({
            "token": escape(&oldest.token),
            "held_ms": oldest.held_ms,
            "ttl_ms": oldest.ttl_ms,
        })
    });
    json!({
        "server": row.server,
        "db": place.db,
        "key": escape(&place.key),
        "mode": mode,
        "holders": holders,
        "waiters": waiters,
        "waited_ms": waited_ms,
        "oldest": oldest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests as model;

    fn two() -> Model {
        let mut servers = model::model(&["a:1", "b:2"]);
        let mut look = model::snapshot(0, 5, vec![model::lock("x\n", 2, 900, 50)]);
        look.notes.push("a note".to_owned());
        servers.update("a:1", Ok(look));
        servers.update("b:2", Err("refused".to_owned()));
        servers
    }

    #[test]
    fn the_document_has_the_shape_that_the_readme_describes() {
        let document = json(&two());
        let locks = json!([{
            "server": "a:1", "db": 0, "key": "x\\x0a", "mode": "exclusive", "holders": 1,
            "waiters": 2, "waited_ms": 900,
            "oldest": { "token": "owner", "held_ms": 50, "ttl_ms": 30_000 },
        }]);
        assert_eq!(document["version"], 1);
        assert_eq!(document["locks"], locks);
        let up = &document["servers"][0];
        assert_eq!(
            (
                &up["up"],
                &up["role"],
                &up["server"],
                &up["module"],
                &up["notes"],
                &up["error"]
            ),
            (
                &json!(true),
                &json!("primary"),
                &json!("redis 7.0.15"),
                &json!("0.2.0"),
                &json!(["a note"]),
                &Value::Null
            )
        );
        assert_eq!(up["info"]["lock_acquired"], 5);
        assert_eq!(document["contended"], json!([]));
        assert_eq!(
            (&up["contended_error"], &up["log_error"]),
            (&Value::Null, &Value::Null)
        );
        let down = json!({ "address": "b:2", "up": false, "error": "refused" });
        assert_eq!(document["servers"][1], down);
    }

    #[test]
    fn the_document_has_what_has_happened_or_why_it_is_not_known() {
        let mut servers = model::model(&["a:1", "b:2"]);
        let mut look = model::snapshot(0, 5, vec![]);
        look.contended = Some(Ok(vec![Contended {
            place: model::lock("x\n", 0, 0, 0).place,
            waits: 2,
            waited_ms: 900,
            longest_ms: 800,
            error_ms: 7,
        }]));
        look.log = Some(Err("the user may not call LOCK.LOG".to_owned()));
        servers.update("a:1", Ok(look));
        let mut look = model::snapshot(0, 5, vec![]);
        look.contended = Some(Err("too old".to_owned()));
        look.log = Some(Ok(vec![Forced {
            time_ms: 1_000,
            age_ms: 50,
            key: Some(b"y\x1b".into()),
            by: Some("del".to_owned()),
            client: Some(17),
            ..Forced::default()
        }]));
        servers.update("b:2", Ok(look));
        let document = json(&servers);
        let contended = json!([{
            "server": "a:1", "db": 0, "key": "x\\x0a", "waits": 2, "waited_ms": 900,
            "longest_ms": 800, "error_ms": 7,
        }]);
        let log = json!([{
            "server": "b:2", "time_ms": 1_000, "age_ms": 50, "db": null, "key": "y\\x1b",
            "token": null, "fence": null, "holders": null, "by": "del", "user": null,
            "address": null, "client": 17, "name": null,
        }]);
        assert_eq!(document["contended"], contended);
        assert_eq!(document["log"], log);
        let errors = |n: usize| {
            let server = &document["servers"][n];
            (
                server["contended_error"].clone(),
                server["log_error"].clone(),
            )
        };
        assert_eq!(
            errors(0),
            (Value::Null, json!("the user may not call LOCK.LOG"))
        );
        assert_eq!(errors(1), (json!("too old"), Value::Null));
    }

    #[test]
    fn the_table_has_both_servers_and_the_lock() {
        let text = table(&two());
        for part in [
            "a:1",
            "redis 7.0.15",
            "b:2 is down: refused",
            "a:1: a note",
            "x\\x0a",
            "900ms",
            "30.0s",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn nothing_is_said_of_locks_if_no_server_answered() {
        let mut servers = model::model(&["a:1"]);
        servers.update("a:1", Err("refused".to_owned()));
        assert!(table(&servers).ends_with("No server has answered.\n"));
        servers.update("a:1", Ok(model::snapshot(0, 0, vec![])));
        assert!(table(&servers).ends_with("Nobody waits for a lock.\n"));
    }
}
