use super::*;
use crate::model::lock::{Holder, Place, Waiter};
use crate::model::tests::{lock, snapshot};
use crate::model::Sort;

pub(crate) fn wishes() -> Wishes {
    Wishes {
        databases: Databases::One(0),
        all: false,
        top: 50,
        interval: Duration::from_secs(1),
        paused: false,
        detail: None,
        past: Past::default(),
    }
}

/// Two locks on one server, of which `a` has waited longer.
pub(crate) fn app() -> App {
    let mut app = App::new(wishes(), false, false);
    app.model.set_servers(&["s:1".to_owned()]);
    app.update("s:1", Ok(snapshot(0, 0, locks())));
    app
}

fn locks() -> Vec<crate::model::lock::Lock> {
    vec![lock("a", 3, 900, 50), lock("b", 4, 800, 60)]
}

pub(crate) fn target(key: &str) -> Target {
    Target {
        server: "s:1".to_owned(),
        place: Place {
            db: 0,
            key: key.into(),
        },
    }
}

pub(crate) fn detail(fence: u64) -> Detail {
    let holder = Holder {
        token: b"owner".into(),
        fence,
        ttl_ms: 20_000,
        since_ms: 1,
        held_ms: 10_000,
    };
    let waiter = Waiter {
        token: b"next".into(),
        mode: "shared".to_owned(),
        waited_ms: 900,
        ..Waiter::default()
    };
    Detail {
        mode: "exclusive".to_owned(),
        limit: None,
        holders: vec![holder],
        holder_count: 1,
        waiters: vec![waiter],
        waiter_count: 1,
    }
}

/// The server answers with LOCK.INFO.
pub(crate) fn answer(app: &mut App, key: &str, detail: Option<Detail>) {
    let mut look = snapshot(1, 0, locks());
    look.detail = Some((target(key).place, Ok(detail)));
    app.update("s:1", Ok(look));
}

pub(crate) fn press(app: &mut App, key: KeyCode) -> Effect {
    app.on_key(KeyEvent::from(key))
}

fn type_in(app: &mut App, text: &str) -> Effect {
    let effects = text.chars().map(|char| press(app, KeyCode::Char(char)));
    effects.last().unwrap()
}

#[test]
fn the_selection_stays_with_its_lock() {
    let mut app = app();
    assert_eq!(
        app.selected_row(),
        Some(0),
        "the first row is selected to begin with"
    );
    type_in(&mut app, "j");
    assert_eq!(app.selected, Some(target("b")));
    type_in(&mut app, "s");
    assert_eq!(
        (app.order.sort, app.selected_row()),
        (Sort::Waiters, Some(0))
    );
    type_in(&mut app, "r");
    assert_eq!(app.selected_row(), Some(1));
    type_in(&mut app, "jjj");
    assert_eq!(app.selected_row(), Some(1), "the last row is the end");
    type_in(&mut app, "k");
    assert_eq!(app.selected, Some(target("a")));
    // A lock that has left the table takes the selection with it; the next step begins anew.
    app.update("s:1", Ok(snapshot(1, 0, vec![lock("c", 1, 1, 1)])));
    assert_eq!(press(&mut app, KeyCode::Enter), Effect::None);
    type_in(&mut app, "j");
    assert_eq!(app.selected, Some(target("c")));
}

#[test]
fn escape_clears_the_filter_before_it_quits() {
    let mut app = app();
    type_in(&mut app, "/qx");
    assert_eq!(
        (app.screen.clone(), app.order.filter.as_str()),
        (Screen::Filter, "qx")
    );
    press(&mut app, KeyCode::Backspace);
    press(&mut app, KeyCode::Enter);
    assert_eq!(
        (app.screen.clone(), app.order.filter.as_str()),
        (Screen::List, "q")
    );
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None);
    assert_eq!(app.order.filter, "");
    type_in(&mut app, "/b");
    press(&mut app, KeyCode::Esc);
    assert_eq!(
        (app.screen.clone(), app.order.filter.as_str()),
        (Screen::List, "")
    );
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::Quit);
    assert_eq!(type_in(&mut app, "q"), Effect::Quit);
}

#[test]
fn a_filter_selects_what_it_leaves() {
    let mut app = app();
    type_in(&mut app, "/b");
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.wishes.detail, Some(target("b")));
}

#[test]
fn enter_asks_for_the_selected_lock_and_escape_for_none() {
    let mut app = app();
    assert_eq!(press(&mut app, KeyCode::Enter), Effect::None);
    assert_eq!(app.wishes.detail, Some(target("a")));
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None);
    assert_eq!(
        (app.wishes.detail.clone(), app.screen),
        (None, Screen::List)
    );
}

#[test]
fn what_has_happened_is_asked_for_only_while_it_is_on_the_screen() {
    let mut app = app();
    let (contended, log) = (
        Past {
            contended: true,
            log: false,
        },
        Past {
            contended: false,
            log: true,
        },
    );
    assert_eq!(app.wishes.past, Past::default());
    for (key, screen, past) in [("c", Screen::Contended, contended), ("l", Screen::Log, log)] {
        for end in [KeyCode::Esc, KeyCode::Char('q')] {
            type_in(&mut app, key);
            assert_eq!((&app.screen, app.wishes.past), (&screen, past));
            type_in(&mut app, "jp");
            assert_eq!((&app.screen, app.wishes.past), (&screen, past));
            assert_eq!(press(&mut app, end), Effect::None);
            assert_eq!(
                (&app.screen, app.wishes.past),
                (&Screen::List, Past::default())
            );
        }
    }
    // From one to the other.
    type_in(&mut app, "cl");
    assert_eq!((&app.screen, app.wishes.past), (&Screen::Log, log));
    type_in(&mut app, "c");
    assert_eq!(
        (&app.screen, app.wishes.past),
        (&Screen::Contended, contended)
    );
}

#[test]
fn the_question_comes_before_the_release_and_names_what_was_shown() {
    let mut app = app();
    assert_eq!(type_in(&mut app, "x"), Effect::None);
    // Nothing is released before the question is on the screen.
    assert_eq!(type_in(&mut app, "y"), Effect::None);
    answer(&mut app, "a", Some(detail(7)));
    // The lock has gone to another holder meanwhile; the question still is of the first one.
    answer(&mut app, "a", Some(detail(8)));
    let hold = Claim {
        place: target("a").place,
        token: b"owner".into(),
        fence: Some(7),
    };
    assert_eq!(type_in(&mut app, "y"), Effect::End("s:1".to_owned(), hold));
    assert_eq!(app.screen, Screen::List);
}

#[test]
fn every_other_key_releases_nothing() {
    for key in [
        KeyCode::Enter,
        KeyCode::Char('n'),
        KeyCode::Char('Y'),
        KeyCode::Esc,
        KeyCode::Char('x'),
    ] {
        let mut app = app();
        type_in(&mut app, "x");
        answer(&mut app, "a", Some(detail(7)));
        assert_eq!(press(&mut app, key), Effect::None, "{key:?}");
        assert_eq!(
            (app.screen.clone(), app.message.as_str()),
            (Screen::List, "nothing was ended")
        );
    }
}

#[test]
fn from_one_lock_the_question_is_of_what_is_on_the_screen() {
    let mut app = app();
    press(&mut app, KeyCode::Enter);
    answer(&mut app, "a", Some(detail(7)));
    type_in(&mut app, "x");
    assert!(matches!(&app.screen, Screen::Release(release) if release.detail.is_some()));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.screen, Screen::Detail(target("a")));
}

#[test]
fn a_free_lock_is_asked_about_its_first_wait() {
    let mut app = app();
    type_in(&mut app, "x");
    let mut free = detail(7);
    free.holders.clear();
    answer(&mut app, "a", Some(free));
    let wait = Claim {
        place: target("a").place,
        token: b"next".into(),
        fence: None,
    };
    let end = Effect::End("s:1".to_owned(), wait);
    assert_eq!(type_in(&mut app, "y"), end);
    assert_eq!(app.screen, Screen::List);
}

#[test]
fn a_free_lock_without_waits_is_not_asked_about() {
    let mut app = app();
    type_in(&mut app, "x");
    answer(&mut app, "a", None);
    assert_eq!(app.screen, Screen::List);
    assert!(app.message.contains("nobody holds"), "{}", app.message);
}

#[test]
fn a_read_only_view_asks_no_question() {
    let mut app = app();
    app.read_only = true;
    assert_eq!(type_in(&mut app, "x"), Effect::None);
    assert_eq!(app.screen, Screen::List);
    assert!(app.message.contains("--read-only"), "{}", app.message);
}

#[test]
fn pause_and_pace() {
    let mut app = app();
    assert_eq!(type_in(&mut app, "p"), Effect::None);
    assert!(app.wishes.paused);
    type_in(&mut app, "p--");
    assert_eq!(
        (app.wishes.paused, app.wishes.interval),
        (false, Duration::from_millis(250))
    );
    type_in(&mut app, "-------");
    assert_eq!(app.wishes.interval, SHORTEST);
    type_in(&mut app, "++");
    assert_eq!(app.wishes.interval, Duration::from_millis(400));
}

#[test]
fn a_database_is_chosen_from_those_that_there_are() {
    let mut app = app();
    app.wishes.databases = Databases::One(7);
    let all = [Databases::All, Databases::One(0), Databases::One(7)];
    assert_eq!(app.database_choices(), all);
    type_in(&mut app, "d");
    assert_eq!(app.screen, Screen::Databases(2));
    type_in(&mut app, "kk");
    assert_eq!(press(&mut app, KeyCode::Enter), Effect::None);
    assert_eq!(
        (app.wishes.databases, app.screen),
        (Databases::All, Screen::List)
    );
}

#[test]
fn control_c_quits_everywhere() {
    let mut app = app();
    type_in(&mut app, "/");
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.on_key(key), Effect::Quit);
}
