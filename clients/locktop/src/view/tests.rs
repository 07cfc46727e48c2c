use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;
use ratatui::Terminal;

use super::*;
use crate::app::tests::{answer, app, detail, press};
use crate::model::lock::{Listener, Waiter};
use crate::model::past::{Contended, Forced};
use crate::model::tests::{lock, snapshot};

const COLOURS: Colours = Colours { on: true };

fn drawn(app: &mut App, width: u16, height: u16, colours: Colours) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, colours)).unwrap();
    terminal
}

fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let terminal = drawn(app, width, height, COLOURS);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width));
    let text =
        |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    rows.map(|row| text(row).trim_end().to_owned()).collect()
}

fn assert_shows(lines: &[String], part: &str) {
    assert!(
        lines.iter().any(|line| line.contains(part)),
        "{part} is not in\n{}",
        lines.join("\n")
    );
}

fn assert_lacks(lines: &[String], part: &str) {
    assert!(
        lines.iter().all(|line| !line.contains(part)),
        "{part} is in\n{}",
        lines.join("\n")
    );
}

#[test]
fn the_screen_has_servers_above_and_locks_below() {
    let mut app = app();
    app.update(
        "s:1",
        Ok(snapshot(
            2,
            50,
            vec![lock("jobs:1", 3, 65_000, 2_500), lock("b\x1b", 4, 800, 60)],
        )),
    );
    assert_eq!(
        screen(&mut app, 126, 9),
        [
            "locktop  1 server  database 0  every 1 s  by wait",
            "                                            held waiting acquired handed refused expired revoked   wait   wait   wait",
            "server         role    version      module   now     now    per s  on /s   per s   per s   per s    p50    p99    max",
            "s:1            primary redis 7.0.15 0.2.0      2       3       25      0       0       0       0  1.5ms  2.5ms   3.5s",
            "",
            "longest                                               oldest                ends",
            " wait ▼ lock             db mode      holders waiters holder         held     in",
            "  1m05s jobs:1            0 exclusive       1       3 owner          2.5s  30.0s",
            "? help  q quit  Enter one lock  x release  / filter  s order  a all locks  d database  i numbers  c contended  l log  p pause",
        ]
    );
}

#[test]
fn a_server_that_is_down_is_red_and_says_why() {
    let mut app = app();
    app.model.set_servers(&["s:1".to_owned(), "t:2".to_owned()]);
    app.update("t:2", Err("Connection refused".to_owned()));
    let lines = screen(&mut app, 110, 24);
    assert_shows(&lines, "2 servers, 1 down");
    assert_shows(&lines, "t:2 is down: Connection refused");
    assert_shows(&lines, "900ms a");
    let mut reds = |colours| {
        let terminal = drawn(&mut app, 110, 24, colours);
        let cells = terminal.backend().buffer().content.clone();
        cells.iter().filter(|cell| cell.fg == Color::Red).count()
    };
    assert!(reds(COLOURS) > 10);
    assert_eq!(reds(Colours { on: false }), 0, "NO_COLOR");
}

#[test]
fn what_a_server_cannot_be_asked_is_said() {
    let mut app = app();
    let mut look = snapshot(0, 0, vec![]);
    look.notes.push("LOCK.TOP is missing".to_owned());
    app.update("s:1", Ok(look));
    let lines = screen(&mut app, 110, 24);
    assert_shows(&lines, "s:1: LOCK.TOP is missing");
    assert_shows(&lines, "Nobody waits for a lock.");
}

#[test]
fn a_guard_that_keeps_requests_waiting_is_red() {
    let mut app = app();
    let mut reds = |guard: &str, left_ms| {
        let mut look = snapshot(0, 0, vec![]);
        look.info.guard = guard.to_owned();
        let left = ("lock_guard_left_ms".to_owned(), left_ms);
        look.info.fields.push(left);
        app.update("s:1", Ok(look));
        let terminal = drawn(&mut app, 110, 24, COLOURS);
        let cells = &terminal.backend().buffer().content;
        let red = cells.iter().filter(|cell| cell.fg == Color::Red);
        red.map(|cell| cell.symbol()).collect::<String>()
    };
    let promotion = reds("promotion", 12_345);
    assert_eq!(promotion, "s:1: guard: promotion, 12.3s left");
    assert_eq!(reds("alone", 0), "s:1: guard: alone");
    assert_eq!(reds("a\x1b", 0), "s:1: guard: a\\x1b");
    for none in ["open", "off", ""] {
        assert_eq!(reds(none, 0), "", "{none}");
    }
}

/// What is drawn in this colour.
fn in_colour(app: &mut App, colour: Color) -> String {
    let terminal = drawn(app, 126, 12, COLOURS);
    let cells = terminal.backend().buffer().content.iter();
    let cells = cells.filter(|cell| cell.fg == colour);
    let text: String = cells.map(|cell| cell.symbol()).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_stuck_has_a_colour() {
    let mut app = app();
    let mut look = |locks| {
        app.update("s:1", Ok(snapshot(2, 50, locks)));
        [Color::Magenta, Color::Red].map(|colour| in_colour(&mut app, colour))
    };
    let in_time = || lock("a", 1, 9_999, 50);
    assert_eq!(look(vec![in_time()]), ["", ""]);
    let (slow, stuck) = (lock("b", 1, 10_000, 50), lock("c", 1, 60_000, 50));
    assert_eq!(look(vec![in_time(), slow, stuck]), ["10.0s", "1m00s"]);
    let mut free = in_time();
    free.oldest = None;
    assert_eq!(look(vec![free]), ["", "-"]);
    let mut neglected = in_time();
    neglected.oldest.as_mut().unwrap().unrenewed_ms = 30_001;
    assert_eq!(look(vec![neglected]), ["owner 30.0s", ""]);
}

#[test]
fn a_server_with_a_guard_has_a_colour() {
    let mut app = app();
    let mut look = snapshot(0, 0, vec![]);
    look.info.guard = "restart".to_owned();
    app.update("s:1", Ok(look));
    assert!(in_colour(&mut app, Color::Magenta).contains("primary"));
}

#[test]
fn a_narrow_terminal_keeps_the_wait_the_key_and_the_waiters() {
    let mut app = app();
    app.update(
        "s:1",
        Ok(snapshot(
            0,
            0,
            vec![lock("a-key-that-is-quite-long", 3, 900, 50)],
        )),
    );
    let lines = screen(&mut app, 50, 20);
    assert_shows(&lines, "900ms a-key-that-is");
    assert_shows(&lines, "waiters");
    assert_lacks(&lines, "exclusive");
    assert_lacks(&lines, "primary");
    // No size makes it fail.
    for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 5)] {
        press(&mut app, KeyCode::Char('?'));
        screen(&mut app, width, height);
        press(&mut app, KeyCode::Esc);
        screen(&mut app, width, height);
    }
}

/// Each word of the header and of the foot is there as a whole or not at all.
#[test]
fn a_narrow_terminal_cuts_no_words() {
    let mut app = app();
    app.wishes.databases = Databases::All;
    app.order.filter = "a".to_owned();
    for keys in ["", "ssr", "sp"] {
        for key in keys.chars() {
            press(&mut app, KeyCode::Char(key));
        }
        let wide = screen(&mut app, 250, 20);
        let words: Vec<_> = wide
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        for width in 45..130 {
            let narrow = screen(&mut app, width, 20);
            let at = |part| narrow.iter().position(|line| line.contains(part)).unwrap();
            let lock = at("longest");
            for line in [0, 1, 2, lock, lock + 1, 19] {
                for word in narrow[line].split_whitespace() {
                    assert!(
                        words.contains(&word),
                        "{width}: {word}\n{}",
                        narrow.join("\n")
                    );
                }
            }
        }
    }
    let narrow = screen(&mut app, 80, 20);
    assert!(narrow[19].starts_with("? help  q quit  Enter one lock"));
    assert!(
        narrow[0].ends_with("paused  keys with a  every 1 s"),
        "{}",
        narrow[0]
    );
}

#[test]
fn one_lock_shows_its_holders_and_its_queue_in_order() {
    let mut app = app();
    press(&mut app, KeyCode::Enter);
    assert_shows(&screen(&mut app, 100, 30), "asking");
    let mut info = detail(1_795_230_000_000_000);
    let waiter = |token: &str, listener| Waiter {
        token: token.into(),
        mode: "counted".to_owned(),
        limit: Some(5),
        waited_ms: 61_000,
        listener,
        result: None,
    };
    info.waiters.push(waiter("second\n", Listener::Client(17)));
    info.waiters
        .push(waiter("third", Listener::Channel(b"grants:\x07".into())));
    answer(&mut app, "a", Some(info));
    let lines = screen(&mut app, 100, 30);
    assert_shows(&lines, "exclusive · s:1 · database 0");
    assert_shows(&lines, "owner        1795230000000000   10.0s   20.0s");
    let at = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
    assert!(lines[at(" 1 next")].contains("nobody listens"));
    let second = &lines[at("second\\x0a")];
    assert!(
        second.contains("counted 5") && second.contains("1m01s client 17"),
        "{second}"
    );
    assert!(lines[at("third")].contains("channel grants:\\x07"));
    assert_lacks(&lines, "or result");
    assert!(at(" 1 next") < at("second") && at("second") < at("third"));
}

#[test]
fn a_long_queue_is_scrolled_to_its_end_and_no_further() {
    let mut app = app();
    press(&mut app, KeyCode::Enter);
    let mut info = detail(7);
    let waiter = |n: u32| Waiter {
        token: format!("w{n}").into(),
        ..Waiter::default()
    };
    info.waiters = (1..=100).map(waiter).collect();
    answer(&mut app, "a", Some(info));
    assert_lacks(&screen(&mut app, 100, 30), "w100");
    for _ in 0..50 {
        press(&mut app, KeyCode::PageDown);
    }
    assert_shows(&screen(&mut app, 100, 30), "w100");
    press(&mut app, KeyCode::Up);
    assert_lacks(&screen(&mut app, 100, 30), "w100");
}

#[test]
fn the_question_says_what_ends_and_what_does_not() {
    let mut app = app();
    press(&mut app, KeyCode::Char('x'));
    let mut info = detail(77);
    info.holders.push(crate::model::lock::Holder {
        since_ms: 5,
        ..info.holders[0].clone()
    });
    answer(&mut app, "a", Some(info));
    let lines = screen(&mut app, 100, 30);
    for part in [
        "Release this lock by force?",
        "lock     a",
        "server   s:1, database 0",
        "holder   owner",
        "fence    77",
        "held     10.0s, ends in 20.0s",
        "All 2 holders lose the lock.",
        "(DEL)",
        "The next waiter gets it at once: next",
        "still believes that it holds the",
        "y releases the lock. Every other key leaves it.",
    ] {
        assert_shows(&lines, part);
    }
}

#[test]
fn the_numbers_of_a_server_include_those_that_nobody_here_knows() {
    let mut app = app();
    let mut look = snapshot(2, 50, vec![]);
    look.info.fields.push(("lock_brand_new".to_owned(), 9));
    app.update("s:1", Ok(look));
    press(&mut app, KeyCode::Char('i'));
    let lines = screen(&mut app, 100, 40);
    assert_shows(&lines, "lock_brand_new");
    assert_shows(
        &lines,
        "lock_acquired                               50       25/s",
    );
    assert_shows(&lines, "lock_wait_usec_p50                       1.5ms");
}

#[test]
fn the_databases_are_a_list() {
    let mut app = app();
    press(&mut app, KeyCode::Char('d'));
    let lines = screen(&mut app, 100, 30);
    assert_shows(&lines, "  all that have keys");
    assert_shows(&lines, "> 0");
}

#[test]
fn the_most_contended_keys_of_all_servers() {
    let mut app = app();
    app.model.set_servers(&["s:1".to_owned(), "t:2".to_owned()]);
    press(&mut app, KeyCode::Char('c'));
    assert_shows(&screen(&mut app, 100, 30), "asking");
    let mut look = snapshot(1, 0, vec![]);
    look.contended = Some(Ok(vec![]));
    app.update("s:1", Ok(look.clone()));
    assert_shows(&screen(&mut app, 100, 30), "Nobody has waited for a lock.");
    look.contended = Some(Ok(vec![Contended {
        place: lock("jobs\x1b[2J", 0, 0, 0).place,
        waits: 12,
        waited_ms: 65_000,
        longest_ms: 8_000,
        error_ms: 70,
    }]));
    app.update("s:1", Ok(look));
    let mut look = snapshot(1, 0, vec![]);
    look.contended = Some(Err("the user may not call LOCK.TOP CONTENDED".to_owned()));
    app.update("t:2", Ok(look));
    let lines = screen(&mut app, 100, 30);
    assert_shows(&lines, "Most waiting since the start or LOCK.RESETSTAT");
    assert_shows(&lines, "t:2: the user may not call LOCK.TOP CONTENDED");
    assert_shows(
        &lines,
        "waited lock             server         db  waits longest  error",
    );
    assert_shows(
        &lines,
        "  1m05s jobs\\x1b[2J      s:1             0     12    8.0s   70ms",
    );
    let narrow = screen(&mut app, 50, 30);
    assert_shows(&narrow, "jobs\\x1b[2J");
    assert_lacks(&narrow, "70ms");
}

#[test]
fn the_log_of_all_servers_has_the_newest_first() {
    let mut app = app();
    app.model.set_servers(&["s:1".to_owned(), "t:2".to_owned()]);
    press(&mut app, KeyCode::Char('l'));
    assert_shows(&screen(&mut app, 130, 30), "asking");
    let mut look = snapshot(1, 0, vec![]);
    look.log = Some(Ok(vec![]));
    app.update("s:1", Ok(look.clone()));
    let lines = screen(&mut app, 130, 30);
    assert_shows(&lines, "No held lock has been ended by force.");
    look.log = Some(Ok(vec![Forced {
        time_ms: 1_000,
        age_ms: 65_000,
        clock: "08:14:02".to_owned(),
        by: Some("flushall".to_owned()),
        ..Forced::default()
    }]));
    app.update("s:1", Ok(look.clone()));
    look.log = Some(Ok(vec![Forced {
        time_ms: 2_000,
        age_ms: 2_500,
        clock: "08:15:05".to_owned(),
        db: Some(3),
        key: Some(b"jobs\x1b[2J".into()),
        token: Some(b"worker\n".into()),
        fence: Some(1_795_230_000_000_000),
        holders: Some(1),
        by: Some("del".to_owned()),
        user: Some("operator".to_owned()),
        address: Some("10.0.0.1:50742".to_owned()),
        client: Some(7),
        name: Some("cron".to_owned()),
    }]));
    app.update("t:2", Ok(look));
    let lines = screen(&mut app, 130, 30);
    let at = lines
        .iter()
        .position(|line| line.contains("time "))
        .unwrap();
    let words = |line: &str| {
        let words = line.trim_matches('│').split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        lines[at..at + 3].iter().map(|line| words(line)).collect::<Vec<_>>(),
        [
            "time age server db lock by user address client token fence",
            "08:15:05 2.5s t:2 3 jobs\\x1b[2J del operator 10.0.0.1:50742 cron worker\\x0a 1795230000000000",
            "08:14:02 1m05s s:1 - - flushall - - - - -",
        ]
    );
    let narrow = screen(&mut app, 80, 30);
    assert_shows(&narrow, "operator 10.0.0.1:50742 cron");
    assert_lacks(&narrow, "1795230000000000");
}

#[test]
fn a_server_that_cannot_tell_says_so_in_one_sentence() {
    for (key, width) in [('c', 100), ('l', 1)] {
        let mut app = app();
        press(&mut app, KeyCode::Char(key));
        let mut look = snapshot(1, 0, vec![]);
        look.contended = Some(Err("too old".to_owned()));
        look.log = Some(Err("too old".to_owned()));
        app.update("s:1", Ok(look));
        let lines = screen(&mut app, 100, 30);
        assert_shows(&lines, "s:1: too old");
        assert_lacks(&lines, "asking");
        assert_lacks(&lines, "Nobody has");
        // No size makes it fail.
        screen(&mut app, width, 3);
    }
}
