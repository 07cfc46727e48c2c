//! A journal as a picture: who held, who waited, and what happened to the servers. It is an SVG, on
//! the page's light or dark ground.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::journal::Line;
use super::judge::{beliefs, Belief};
use super::requests::{Answer, Finding, History, Request};

const LEFT: f64 = 96.0;
const WIDTH: f64 = 1_080.0;
const ROW: f64 = 14.0;
/// Where the servers' rows begin: above are the title and the names of the faults.
const TOP: f64 = 104.0;
/// A wait that is shorter is not drawn.
const SHORT_US: u64 = 3_000;

const STYLE: &str = "
.ground{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}.line{stroke:#d1d9e0}
.alone{fill:#2a6fdb}.shared{fill:#4fae74}.wait{stroke:#8b949e}.down{fill:#c9d1d9}
.primary{fill:#2a6fdb;fill-opacity:.28}.replica{fill:#8b949e;fill-opacity:.22}
.closed{fill:#e3a008;fill-opacity:.55}.fault{stroke:#bf3989}.faulty{fill:#bf3989}
.wrong{fill:#d1242f;fill-opacity:.28;stroke:#d1242f}.wrongly{fill:#d1242f}.on{fill:#ffffff}
@media (prefers-color-scheme:dark){
.ground{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.line{stroke:#30363d}
.alone{fill:#4c8dff}.shared{fill:#3fb950}.down{fill:#30363d}.fault{stroke:#db61a2}
.faulty{fill:#db61a2}.wrong{stroke:#f85149;fill:#f85149}.wrongly{fill:#ff7b72}.on{fill:#0d1117}}
text{font:10px system-ui,sans-serif}.title{font-size:13px;font-weight:600}";

struct Picture<'l> {
    lines: &'l [Line],
    from_us: u64,
    until_us: u64,
    y: f64,
    body: String,
}

/// The whole round, with what was found marked.
pub fn of_round(lines: &[Line], findings: &[Finding]) -> String {
    let history = History::of(lines);
    let first_us = history.requests.first().map_or(0, |one| one.sent_us);
    let mut picture = Picture::new(lines, first_us, history.end_us);
    picture.servers(&history);
    let beliefs = beliefs(lines);
    let mut keys: Vec<&str> = beliefs.iter().map(|belief| &belief.key[..]).collect();
    keys.dedup();
    for key in keys {
        picture.key(key, &beliefs, &history, findings);
    }
    let title =
        "When each client believed that it held a lock. Red: two believed so of one lock at once";
    picture.finish(title, &LEGEND)
}

/// Only the requests that contradict one another.
pub fn of_contradiction(lines: &[Line], finding: &Finding) -> String {
    let history = History::of(lines);
    let about = |token: &str| finding.tokens.iter().any(|one| one == token);
    let all = history.requests.iter().filter(|one| about(one.token));
    let requests: Vec<_> = all.collect();
    let first_us = requests.iter().map(|one| one.sent_us).min();
    let last_us = requests.iter().map(|one| one.ended_us).max();
    let from_us = first_us.unwrap_or(finding.from_us).min(finding.from_us);
    let until_us = last_us
        .unwrap_or(0)
        .max(finding.until_us.min(history.end_us));
    let margin_us = (until_us - from_us) / 12;
    let (from_us, until_us) = (from_us.saturating_sub(margin_us), until_us + 3 * margin_us);
    let mut picture = Picture::new(lines, from_us, until_us);
    picture.servers(&history);
    let top = picture.y;
    for token in &finding.tokens {
        let of_token = requests.iter().filter(|one| one.token == token);
        picture.requests(token, of_token.copied(), &beliefs(lines));
    }
    let (x, width) = picture.bar(finding.from_us, finding.until_us);
    let height = picture.y - top;
    picture.rect("wrong", (x, top - 4.0), (width.max(3.0), height), "");
    picture.finish(&finding.text, &LEGEND[..5])
}

const LEGEND: [(&str, &str); 7] = [
    ("alone", "held alone, as its client believes"),
    ("shared", "held with others"),
    ("wrong", "a contradiction"),
    ("primary", "primary"),
    ("replica", "replica"),
    ("closed", "no new grant"),
    ("down", "the server is down or stands still"),
];

impl<'l> Picture<'l> {
    fn new(lines: &'l [Line], from_us: u64, until_us: u64) -> Self {
        Self {
            lines,
            from_us,
            until_us: until_us.max(from_us + 1),
            y: TOP,
            body: String::new(),
        }
    }

    fn x(&self, us: u64) -> f64 {
        let us = us.clamp(self.from_us, self.until_us) - self.from_us;
        LEFT + WIDTH * us as f64 / (self.until_us - self.from_us) as f64
    }

    /// Where a bar begins, and how wide it is.
    fn bar(&self, from_us: u64, until_us: u64) -> (f64, f64) {
        let x = self.x(from_us);
        (x, self.x(until_us) - x)
    }

    fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), tip: &str) {
        let tip = escaped(tip);
        writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"><title>{tip}</title></rect>"
        )
        .unwrap();
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        )
        .unwrap();
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        )
        .unwrap();
    }

    /// A row for each server, with the faults across.
    fn servers(&mut self, history: &History<'_>) {
        let mut ports: Vec<u16> = Vec::new();
        for line in self.lines.iter().filter(|line| line.to > 0) {
            if !ports.contains(&line.to) {
                ports.push(line.to);
            }
        }
        for (n, port) in ports.iter().enumerate() {
            let name = char::from(b'A' + u8::try_from(n).unwrap_or(25));
            self.text("ink", (4.0, self.y + 9.0), &format!("{name}  :{port}"));
            for (from_us, until_us, class) in self.states(*port, n == 0) {
                if until_us > self.from_us && from_us < self.until_us {
                    let (x, width) = self.bar(from_us, until_us);
                    self.rect(class, (x, self.y), (width, 11.0), class);
                }
            }
            self.y += ROW;
        }
        if let Some((_, promoted_us)) = history.promoted {
            let first_us = first_grant_us(history).unwrap_or(history.end_us);
            let (x, width) = self.bar(promoted_us, first_us);
            let ms = (first_us - promoted_us) / 1_000;
            if width > 0.0 {
                self.rect("closed", (x, self.y), (width, 5.0), "no new grant");
                self.text(
                    "soft",
                    (x + 3.0, self.y + 14.0),
                    &format!("no new grant for {ms} ms"),
                );
            }
        }
        self.y += 24.0;
        self.faults(&ports);
    }

    /// What a server is, from when until when.
    fn states(&self, port: u16, is_first: bool) -> Vec<(u64, u64, &'static str)> {
        let mut states = Vec::new();
        let mut role = if is_first { "primary" } else { "replica" };
        let (mut state, mut since_us) = (role, 0);
        for line in self.lines.iter().filter(|line| line.who == "driver") {
            let next = match &line.what[..] {
                _ if line.to != port => continue,
                "kill" | "stop" => "down",
                "cont" => role,
                "promoted" => {
                    role = "primary";
                    role
                }
                "demoted" => {
                    role = "replica";
                    role
                }
                _ => continue,
            };
            states.push((since_us, line.at_us, state));
            (state, since_us) = (next, line.at_us);
        }
        states.push((since_us, u64::MAX, state));
        states
    }

    fn faults(&mut self, ports: &[u16]) {
        let harmless = ["round", "knows", "heard", "promoting", "over"];
        let mut right = [0.0; 5];
        for line in self.lines.iter().filter(|line| line.who == "driver") {
            let is_here = (self.from_us..=self.until_us).contains(&line.at_us);
            if !is_here || harmless.contains(&&line.what[..]) {
                continue;
            }
            let server = ports.iter().position(|port| *port == line.to);
            let server = server.map_or(' ', |n| char::from(b'A' + u8::try_from(n).unwrap_or(25)));
            let label = format!("{} {server} {}", line.what, line.text);
            let x = self.x(line.at_us);
            let level = right.iter().position(|right| *right < x).unwrap_or(4);
            right[level] = x + 6.0 * label.len() as f64;
            let y = 44.0 + 11.0 * level as f64;
            self.line("fault", (x, y), (x, self.y));
            self.text("faulty", (x + 3.0, y + 4.0), label.trim());
        }
    }

    /// The holds and waits of a lock, in as many rows as there are at one time.
    fn key(&mut self, key: &str, beliefs: &[Belief], history: &History<'_>, found: &[Finding]) {
        let mut tokens: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let here = beliefs.iter().filter(|belief| belief.key == key);
        let waits = history.requests.iter().filter(|one| is_wait(one, key));
        let held = here
            .clone()
            .map(|one| (&one.token[..], one.from_us, one.until_us));
        let waited = waits
            .clone()
            .map(|one| (one.token, one.sent_us, one.ended_us));
        for (token, from_us, until_us) in held.chain(waited) {
            let (first_us, last_us) = tokens.entry(token).or_insert((from_us, until_us));
            (*first_us, *last_us) = ((*first_us).min(from_us), (*last_us).max(until_us));
        }
        let mut tokens: Vec<_> = tokens.into_iter().collect();
        tokens.sort_by_key(|(_, (from_us, _))| *from_us);
        let (mut free_us, mut rows): (Vec<u64>, BTreeMap<&str, usize>) = Default::default();
        for (token, (from_us, until_us)) in tokens {
            let row = free_us.iter().position(|us| *us <= from_us);
            let row = row.unwrap_or(free_us.len());
            free_us.resize(free_us.len().max(row + 1), 0);
            free_us[row] = until_us;
            rows.insert(token, row);
        }
        let top = self.y;
        let y_of = |token: &str| top + ROW * rows[token] as f64;
        self.line("line", (4.0, top - 4.0), (LEFT + WIDTH, top - 4.0));
        self.text("ink", (4.0, top + 9.0), key);
        for one in waits {
            let y = y_of(one.token) + 5.5;
            let (from, to) = (self.x(one.sent_us), self.x(one.ended_us));
            self.line("wait", (from, y), (to, y));
        }
        for one in here {
            let class = if one.is_shared { "shared" } else { "alone" };
            let ((x, width), y) = (self.bar(one.from_us, one.until_us), y_of(&one.token));
            let tip = format!(
                "{} {} to {} ms",
                one.token,
                one.from_us / 1_000,
                one.until_us / 1_000
            );
            self.rect(class, (x, y), (width.max(1.0), 11.0), &tip);
            if width > 7.0 * one.token.len() as f64 {
                self.text("on", (x + 3.0, y + 9.0), &one.token);
            }
        }
        let height = ROW * free_us.len() as f64;
        for one in found.iter().filter(|one| one.key == key) {
            let (x, width) = self.bar(one.from_us, one.until_us);
            self.rect("wrong", (x, top - 2.0), (width.max(3.0), height), &one.text);
        }
        self.y += height + 8.0;
    }

    /// The requests of a token one below the other, and what its client believed.
    fn requests<'r>(
        &mut self,
        token: &str,
        requests: impl Iterator<Item = &'r Request<'r>>,
        beliefs: &[Belief],
    ) {
        self.line("line", (4.0, self.y - 4.0), (LEFT + WIDTH, self.y - 4.0));
        self.text("ink", (4.0, self.y + 9.0), token);
        for one in beliefs.iter().filter(|one| one.token == token) {
            let class = if one.is_shared { "shared" } else { "alone" };
            let (x, width) = self.bar(one.from_us, one.until_us);
            self.rect(class, (x, self.y), (width.max(1.0), 11.0), "");
        }
        self.y += ROW + 2.0;
        for one in requests {
            let (from, to) = (self.x(one.sent_us), self.x(one.ended_us));
            let y = self.y + 5.5;
            self.line("wait", (from, y), (to, y));
            self.line("wait", (from, y - 3.0), (from, y + 3.0));
            self.line("wait", (to, y - 3.0), (to, y + 3.0));
            let answer = match one.answer {
                Answer::Number(n) => n.to_string(),
                other => format!("{other:?}").to_lowercase(),
            };
            let ttl = one.ttl_ms.map_or(String::new(), |ms| format!(" {ms}"));
            let at = one.sent_us / 1_000;
            let label = format!(
                "{at} ms: {} {}{ttl} → {answer}, at :{}",
                one.command, one.key, one.to
            );
            // What does not fit on the right stands on the left.
            let width = 5.6 * label.len() as f64;
            let x = match to + width > LEFT + WIDTH && from > width {
                true => from - width - 5.0,
                false => to + 5.0,
            };
            self.text("soft", (x, y + 3.5), &label);
            self.y += ROW;
        }
        self.y += 10.0;
    }

    /// The time, below all.
    fn grid(&mut self) {
        let seconds = (self.until_us - self.from_us) as f64 / 1e6;
        let step = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
        let step = step
            .into_iter()
            .find(|step| seconds / step <= 14.0)
            .unwrap_or(10.0);
        let mut at = (self.from_us as f64 / 1e6 / step).ceil() * step;
        while at * 1e6 <= self.until_us as f64 {
            let x = self.x((at * 1e6) as u64);
            self.line("line", (x, TOP - 6.0), (x, self.y));
            self.text("soft", (x - 8.0, self.y + 10.0), &format!("{at:.2} s"));
            at += step;
        }
    }

    fn finish(mut self, title: &str, legend: &[(&str, &str)]) -> String {
        let round = self.lines.iter().find(|line| line.what == "round");
        let round = round.map_or("", |line| &line.text);
        self.text("ink title", (4.0, 18.0), title);
        self.text("soft", (4.0, 33.0), round);
        let body = std::mem::take(&mut self.body);
        self.grid();
        self.body += &body;
        self.y += 26.0;
        let mut x = 4.0;
        for (class, text) in legend {
            self.rect(class, (x, self.y - 9.0), (14.0, 10.0), "");
            self.text("soft", (x + 19.0, self.y), text);
            x += 40.0 + 6.0 * text.len() as f64;
        }
        let (width, height) = (LEFT + WIDTH + 20.0, self.y + 12.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n<style>{STYLE}</style>\n<rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn is_wait(one: &Request<'_>, key: &str) -> bool {
    one.key == key && one.block_ms.is_some() && one.ended_us - one.sent_us > SHORT_US
}

/// The first new grant after the last promotion.
fn first_grant_us(history: &History<'_>) -> Option<u64> {
    let (to, since_us) = history.promoted?;
    let is_first = |one: &&Request<'_>| {
        let mut all = history.requests.iter();
        one.is_acquire()
            && one.to == to
            && one.ended_us > since_us
            && matches!(one.answer, Answer::Number(_))
            && !all.any(|other| other.token == one.token && other.sent_us < one.sent_us)
    };
    let grants = history.requests.iter().filter(is_first);
    grants.map(|one| one.ended_us).min()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
