//! The figures of docs/PROOF.md, which come from files of docs/benchmarks. Its blocks
//! `<!-- figures: NAME -->` are written by `make proof` and compared by a test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Each fault of the campaign, in words.
const FAULTS: [(&str, &str); 22] = [
    ("calm", "no fault"),
    ("restartempty", "kill -9, and a start with nothing"),
    ("restartrdb", "kill -9, and a start with an older RDB"),
    (
        "restartaof",
        "kill -9, and a start with the beginning of the append-only file",
    ),
    ("diskfull", "a full disk, then kill -9 and a start"),
    ("paused", "SIGSTOP of the primary for about a lease"),
    ("clockstep", "a step of the primary's wall clock"),
    (
        "behind",
        "kill -9, and the promotion of a replica that is behind",
    ),
    ("twice", "the same twice within C"),
    ("slow", "the same over slow links"),
    ("speeds", "the same with clocks of different speed"),
    ("config", "the same after changes of mode and M"),
    ("planned", "`FAILOVER`, which loses nothing"),
    ("upgrade", "a rolling upgrade, with `FAILOVER`"),
    (
        "stopped",
        "SIGSTOP of the old primary during the promotion, and its return",
    ),
    (
        "liveson",
        "an old primary that goes on granting for a while",
    ),
    ("partition", "a partition, and a promotion on one side"),
    ("empty", "the promotion of an empty replica"),
    (
        "cutoff",
        "an old primary that lives on, cut off, with clients on both sides",
    ),
    ("moved", "slots of a cluster that move key by key"),
    ("movedatonce", "slots of a cluster that move as a whole"),
    ("seized", "slots that come without their holds"),
];

const END: &str = "<!-- end of figures -->";

struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks");
        let text = fs::read_to_string(path.join(name)).unwrap();
        let fields = |line: &str| line.split('\t').map(str::to_string).collect();
        let mut lines = text.lines();
        Self {
            head: lines.next().map(fields).unwrap(),
            rows: lines.map(fields).collect(),
        }
    }

    fn has(&self, column: &str) -> bool {
        self.head.iter().any(|name| name == column)
    }

    fn text<'t>(&self, row: &'t [String], column: &str) -> &'t str {
        let at = self.head.iter().position(|name| name == column);
        at.map_or("", |at| &row[at])
    }

    fn number(&self, row: &[String], column: &str) -> u64 {
        self.text(row, column).parse().unwrap_or(0)
    }

    /// The sum of a column over the rows in which others have these values.
    fn sum(&self, column: &str, of: &[(&str, &str)]) -> u64 {
        let rows = self.rows.iter().filter(|row| {
            of.iter()
                .all(|(column, value)| self.text(row, column) == *value)
        });
        rows.map(|row| self.number(row, column)).sum()
    }

    /// The values of a column, each once.
    fn values(&self, column: &str) -> Vec<&str> {
        let mut values: Vec<_> = self.rows.iter().map(|row| self.text(row, column)).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// With commas between thousands.
fn told(number: u64) -> String {
    let digits = number.to_string();
    let mut told = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            told.push(',');
        }
        told.push(digit);
    }
    told
}

fn percent(part: u64, of: u64) -> String {
    match of {
        0 => "-".into(),
        _ => format!("{} %", (100 * part + of / 2) / of),
    }
}

fn runs() -> String {
    let runs = Table::read("runs.tsv");
    let mut text = String::from(
        "| seed | commit | groups at one time | hours | rounds | requests |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for row in &runs.rows {
        let of = |column| runs.text(row, column);
        let requests = of("requests").parse().map_or("-".into(), told);
        let hours: f64 = of("hours").parse().unwrap();
        writeln!(
            text,
            "| {} | {} | {} | {hours:.2} | {} | {requests} |",
            of("seed"),
            of("commit"),
            of("groups"),
            told(runs.number(row, "rounds"))
        )
        .unwrap();
    }
    let hours = runs
        .rows
        .iter()
        .map(|row| runs.text(row, "hours").parse::<f64>().unwrap());
    writeln!(text, "\n{:.2} hours in all.", hours.sum::<f64>()).unwrap();
    text
}

fn campaign(failovers: &Table) -> String {
    let of = |guard, column| failovers.sum(column, &[("guard", guard)]);
    let (rounds, control) = (of("on", "rounds"), of("off", "rounds"));
    let with = of("off", "rounds with overlaps");
    let mut text = format!(
        "- **With the guard**: {} rounds, {} grants, **{} overlaps**. The first new grant came late in {}.\n",
        told(rounds),
        told(of("on", "grants")),
        told(of("on", "overlaps")),
        told(of("on", "late")),
    );
    writeln!(
        text,
        "- **Without it**, as a control: {} rounds, {} of them with overlaps ({}).",
        told(control),
        told(with),
        percent(with, control)
    )
    .unwrap();
    let held = of("on", "holds of adapters") + of("off", "holds of adapters");
    writeln!(
        text,
        "- **Adapters** of five languages: {} holds.",
        told(held)
    )
    .unwrap();
    let not_counted = of("on", "not counted") + of("off", "not counted");
    writeln!(
        text,
        "- **Not counted**: {}. The driver could not play these rounds, or they left the conditions.",
        told(not_counted)
    )
    .unwrap();
    writeln!(
        text,
        "- **Servers**: {}.",
        failovers.values("server").join(", ")
    )
    .unwrap();
    text
}

fn faults(failovers: &Table) -> String {
    let has_topology = failovers.has("topology");
    let mut groups: BTreeMap<(String, usize), ()> = BTreeMap::new();
    for row in &failovers.rows {
        let name = failovers.text(row, "fault");
        let at = FAULTS.iter().position(|(known, _)| *known == name);
        let at = at.unwrap_or_else(|| panic!("no words for the fault {name}"));
        let topology = match has_topology {
            true => failovers.text(row, "topology"),
            false => "group",
        };
        groups.insert((topology.to_string(), at), ());
    }
    let mut text = String::from(
        "| servers | fault | rounds with the guard | overlaps | rounds of the control | with overlaps |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for ((topology, at), ()) in groups {
        let (name, words) = FAULTS[at];
        let words = match (&topology[..], name) {
            ("sentinel", "planned") => {
                "`SENTINEL FAILOVER`, and the old primary goes on for a while"
            }
            _ => words,
        };
        let of = |guard, column| {
            let mut of = vec![("guard", guard), ("fault", name)];
            if has_topology {
                of.push(("topology", &topology[..]));
            }
            failovers.sum(column, &of)
        };
        let (control, with) = (of("off", "rounds"), of("off", "rounds with overlaps"));
        writeln!(
            text,
            "| {topology} | {words} | {} | {} | {} | {with} ({}) |",
            told(of("on", "rounds")),
            of("on", "overlaps"),
            told(control),
            percent(with, control)
        )
        .unwrap();
    }
    text
}

fn modes(failovers: &Table) -> String {
    let mut text = String::from(
        "| `lock.guard` | rounds | grants | overlaps | holders that asked for a renewal | kept |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for mode in ["restart", "failover", "quorum"] {
        let of = |column| failovers.sum(column, &[("guard", "on"), ("mode", mode)]);
        let (renewing, kept) = (of("renewing"), of("kept"));
        writeln!(
            text,
            "| `{mode}` | {} | {} | {} | {} | {} ({}) |",
            told(of("rounds")),
            told(of("grants")),
            of("overlaps"),
            told(renewing),
            told(kept),
            percent(kept, renewing)
        )
        .unwrap();
    }
    text
}

fn planted() -> String {
    let planted = Table::read("planted.tsv");
    let mut text = String::from(
        "| fault | mode | played under | found by | rounds | seconds |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for row in &planted.rows {
        let of = |column| planted.text(row, column);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            of("fault").replace('-', " "),
            of("modes").replace(',', ", "),
            of("under").replace(',', ", "),
            of("found by"),
            of("rounds"),
            of("seconds")
        )
        .unwrap();
    }
    let is_found = |row: &&Vec<String>| planted.text(row, "found by") != "nobody";
    let found = planted.rows.iter().filter(is_found).count();
    writeln!(
        text,
        "\nThe judges found {found} of {} faults.",
        planted.rows.len()
    )
    .unwrap();
    text
}

/// The page with the figures that the files have now.
fn renewed(page: &str) -> String {
    let failovers = Table::read("failovers.tsv");
    let blocks: [(&str, String); 5] = [
        ("runs", runs()),
        ("campaign", campaign(&failovers)),
        ("faults", faults(&failovers)),
        ("modes", modes(&failovers)),
        ("planted", planted()),
    ];
    let mut page = page.to_string();
    for (name, figures) in blocks {
        let begin = format!("<!-- figures: {name} -->");
        let (before, rest) = page.split_once(&begin).expect(name);
        let (_, after) = rest.split_once(END).expect(name);
        page = format!("{before}{begin}\n{figures}{END}{after}");
    }
    page
}

/// `make proof` writes them: with `PROOF=write`.
#[test]
fn the_proof_has_the_figures_of_its_files() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/PROOF.md");
    let page = fs::read_to_string(&path).unwrap();
    let renewed = renewed(&page);
    if std::env::var("PROOF").is_ok_and(|value| value == "write") {
        fs::write(&path, renewed).unwrap();
        return;
    }
    assert!(page == renewed, "run `make proof`");

    // Nobody checks figures elsewhere. Settings and versions stand as code, or are small.
    let mut prose = String::new();
    for (n, part) in page.split("<!-- figures: ").enumerate() {
        let after = if n == 0 {
            Some(part)
        } else {
            part.split_once(END).map(|(_, rest)| rest)
        };
        prose.push_str(after.unwrap());
    }
    let mut code = prose.split('`');
    while let Some(text) = code.next() {
        let large = text.split(|c: char| !c.is_ascii_digit() && c != ',');
        let large = large.map(|number| number.trim_matches(','));
        let large: Vec<_> = large.filter(|number| number.len() > 2).collect();
        assert!(large.is_empty(), "figures outside of the blocks: {large:?}");
        code.next();
    }
}
