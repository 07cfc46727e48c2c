//! The rules that the compiler does not check: which layer may use which, and how long a file may
//! be.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "harness/links.rs"]
mod links;
#[path = "tidy/modules.rs"]
mod modules;

use links::follow_links;

/// A longer file is hard to read.
const MAX_LINES: usize = 500;

/// A file of the module that is longer says why.
const MAX_LINES_WITHOUT_REASON: usize = 400;

/// Rustfmt holds the code to as much. Its `comment_width` is not in a stable release.
const MAX_COMMENT_COLUMNS: usize = 100;

/// No function of the module is longer.
const MAX_FUNCTION_LINES: usize = 70;

/// The files of the module and of its core.
fn production() -> impl Iterator<Item = (PathBuf, String)> {
    ["core/src", "src"].into_iter().flat_map(sources)
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources under {root:?}");
    found
}

/// The lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The compiler keeps the core apart from the server, but not its layers from one another.
#[test]
fn layers_of_the_core_use_only_those_below() {
    let layers = ["engine", "command", "wait", "book", "rules", "lock"];
    for (n, layer) in layers.iter().enumerate() {
        for (path, text) in sources(&format!("core/src/{layer}")) {
            for above in &layers[..n] {
                let uses = |(_, line): (usize, &str)| line.contains(&format!("crate::{above}::"));
                let uses = code(&text).any(uses);
                assert!(!uses, "{} uses {above}", path.display());
            }
        }
    }
}

/// A raw call without the right checks crashes Valkey 9.1.
#[test]
fn server_commands_are_called_from_one_module() {
    for (path, text) in production() {
        for (n, line) in code(&text) {
            let calls = line.contains("RedisModule_Call(") || line.contains(".call(c\"");
            let may = path.ends_with("server/api/caller.rs")
                || path.ends_with("server/replication/writes.rs");
            assert!(may || !calls, "{}:{n}: {line}", path.display());
        }
    }
}

#[test]
fn files_stay_small() {
    for folder in ["core/src", "src", "tests", "examples", "benches"] {
        for (path, text) in sources(folder) {
            let lines = text.lines().count();
            assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
        }
    }
}

/// The reason stands near the top of the file, in a line of its own.
#[test]
fn long_files_of_the_source_say_why() {
    for (path, text) in production() {
        let lines = text.lines().count();
        let mut top = text.lines().take(30);
        let has_reason = top.any(|line| line.starts_with("// Long because: "));
        assert!(
            lines <= MAX_LINES_WITHOUT_REASON || has_reason,
            "{} has {lines} lines and no line `// Long because: …` near its top",
            path.display()
        );
    }
}

/// But tables, and what is written as code.
#[test]
fn comments_of_the_source_are_wrapped() {
    for (path, text) in production() {
        let mut in_code = false;
        for (n, line) in text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else {
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!', ' ']);
            in_code ^= comment.starts_with("```");
            let is_prose = line.trim_start().starts_with("//") && !comment.starts_with('|');
            let is_long = line.chars().count() > MAX_COMMENT_COLUMNS;
            let (path, n) = (path.display(), n + 1);
            assert!(in_code || !is_prose || !is_long, "{path}:{n} is long");
        }
    }
}

/// Rustfmt puts the end of a function under its beginning.
#[test]
fn functions_stay_short() {
    for (path, text) in production() {
        let mut starts: Vec<(usize, usize)> = Vec::new();
        for (n, line) in code(&text) {
            let indent = line.len() - line.trim_start().len();
            if format!(" {line}").contains(" fn ") && !line.ends_with([';', '}']) {
                starts.retain(|(of, _)| *of < indent);
                starts.push((indent, n));
            } else if line.trim_start() == "}" {
                let ended = starts.iter().find(|(of, _)| *of == indent);
                let lines = ended.map_or(0, |(_, start)| n - start + 1);
                let is_short = lines <= MAX_FUNCTION_LINES;
                assert!(is_short, "{}:{n}: {lines} lines", path.display());
                starts.retain(|(of, _)| *of < indent);
            }
        }
    }
}

/// The table of rows is the one in docs/ARCHITECTURE.md.
#[test]
fn files_of_the_shell_use_only_their_row_and_those_above() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("| row | files |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let row_of = |name: &str| {
        table
            .lines()
            .position(|row| row.contains(&format!("`{name}")))
    };
    let mut seen = 0;
    for (path, text) in sources("src/server") {
        let file = path.strip_prefix(root.join("src/server")).unwrap();
        let own = file.iter().next().unwrap().to_str().unwrap();
        let own = own.trim_end_matches(".rs");
        for (n, line) in code(&text).filter(|_| own != "mod") {
            for rest in line.split("crate::server::").skip(1) {
                let used = rest
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap();
                let is_above = used == own || row_of(used) < row_of(own);
                assert!(is_above, "{}:{n}: {used} is not above", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 15, "only {seen} uses were seen");
}

/// Nobody has to read a file to know what it is for.
#[test]
fn each_file_begins_with_what_it_has() {
    for (path, text) in production() {
        let is_said = text.starts_with("//! ");
        assert!(is_said, "{} does not say what it has", path.display());
    }
}

/// Tests prove the statements of these documents: a name in them is a test, or a file or folder of
/// tests.
#[test]
fn the_tests_that_the_documents_name_exist() {
    named_tests_exist("tests/README.md", 38);
    named_tests_exist("docs/MIGRATING.md", 7);
}

fn named_tests_exist(document: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(document)).unwrap();
    let is_name = |word: &&str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
        word.contains("::") && word.chars().all(plain)
    };
    let names: Vec<_> = text.split('`').filter(is_name).collect();
    assert!(names.len() >= at_least, "only {} names", names.len());
    let tests = sources("tests");
    for name in names {
        let (group, last) = name.rsplit_once("::").unwrap();
        let is_of = |path: &Path, group: &str| {
            ["tests/integration", "tests"].iter().any(|tests| {
                let folder = root.join(tests).join(group.replace("::", "/"));
                path.starts_with(&folder) || path == folder.with_extension("rs")
            })
        };
        let is_test = tests
            .iter()
            .any(|(path, text)| is_of(path, group) && text.contains(&format!("fn {last}(")));
        let is_group = tests.iter().any(|(path, _)| is_of(path, name));
        assert!(is_test || is_group, "there is no test {name}");
    }
}

/// Relative links of the documents lead to files.
#[test]
fn relative_links_in_the_documents_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = [
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
    ];
    let mut documents: Vec<_> = top.iter().map(|name| root.join(name)).collect();
    for folder in [
        "docs",
        "examples",
        "clients",
        "fuzz",
        "packaging",
        "scripts",
        "tests",
        "benches",
    ] {
        let files = files_in(&root.join(folder)).into_iter();
        documents.extend(files.filter(|file| file.extension().is_some_and(|ext| ext == "md")));
    }
    let seen: usize = documents
        .iter()
        .map(|document| follow_links(document))
        .sum();
    assert!(seen >= 20, "only {seen} links");
}

#[test]
fn the_summary_lists_all_documents() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    for page in files_in(&docs) {
        let name = page.strip_prefix(&docs).unwrap().display().to_string();
        let is_listed = summary.contains(&format!("]({name})"));
        let is_page = name.ends_with(".md") && name != "SUMMARY.md";
        assert!(
            is_listed || !is_page,
            "docs/SUMMARY.md does not list {name}"
        );
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Installed packages are not part of this project.
        let is_ours = !name.starts_with('.') && name != "node_modules" && name != "target";
        if !path.is_dir() {
            found.push(path);
        } else if is_ours {
            found.extend(files_in(&path));
        }
    }
    found
}

/// Every package and page that names the version names that of `Cargo.toml`, and a changelog has a
/// dated section of it. Lock files name it, too, because `--locked` refuses others. RELEASING.md says
/// how to set a new one.
#[test]
fn there_is_one_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = env!("CARGO_PKG_VERSION");
    let list = fs::read_to_string(root.join("packaging/versions")).unwrap();
    for file in list.lines() {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let wanted = match file.ends_with("CHANGELOG.md") {
            true => format!("## {version} (20"),
            false => version.into(),
        };
        assert!(text.contains(&wanted), "{file} has no {wanted}");
    }
    for (folder, name) in [
        (".", "redis-lock"),
        ("fuzz", "redis-lock"),
        ("clients/rust", "redis-lock-client"),
        ("clients/locktop", "locktop"),
    ] {
        let text = fs::read_to_string(root.join(folder).join("Cargo.lock")).unwrap();
        let wanted = format!("name = \"{name}\"\nversion = \"{version}\"");
        assert!(text.contains(&wanted), "{folder}/Cargo.lock: {wanted}");
    }
    let text = fs::read_to_string(root.join("clients/node/package-lock.json")).unwrap();
    let wanted = format!("\"version\": \"{version}\"");
    let own = text.lines().nth(2).unwrap_or_default();
    assert!(
        own.contains(&wanted),
        "clients/node/package-lock.json: {own}"
    );
}

/// The repository, the Maven group and the image have one owner, wherever they are named. The
/// owner is changed in `packaging/names` and, by `sed`, in what this test then names.
#[test]
fn there_is_one_owner() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = fs::read_to_string(root.join("packaging/names")).unwrap();
    let named = |kind: &str| {
        let mut lines = names.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == kind).unwrap().1.to_owned()
    };
    let repository = named("repository").replace("https://", "");
    let group = format!("<groupId>{}</groupId>", named("maven-group"));
    let (mut seen, workflows) = (0, root.join(".github/workflows"));
    for file in [files_in(root), files_in(&workflows)].concat() {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (start, end, ours) in [
            ("github.com/", "/redis-lock", &repository),
            ("<groupId>io.github.", "</groupId>", &group),
            ("ghcr.io/", "/redis-lock", &named("image")),
        ] {
            for (at, _) in text.match_indices(start) {
                let (_, rest) = text[at..].split_at(start.len());
                let owner: String = rest.chars().take_while(|c| is_of_a_name(*c)).collect();
                if rest[owner.len()..].starts_with(end) {
                    let found = format!("{start}{owner}{end}");
                    assert!(ours.starts_with(&found), "{}: {found}", file.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 50, "only {seen}");
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}
