//! Which file of `src` uses what of which other file, read from its paths: `use` declarations, and
//! paths in the code that begin at `crate`, `super`, `self` or an imported module.
//!
//! A name that a file only re-exports belongs to the file that defines it. So a parent that
//! declares its children and re-exports from them uses none of them. Tests do not count: neither
//! their modules in a file nor files that are compiled for tests only. Method calls name no file,
//! so they are not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::source::{words, Word};

/// A path such as `crate::wait::queue`, without `crate`.
type Names = Vec<String>;

/// The file of each module.
pub(crate) struct Tree {
    modules: BTreeMap<Names, Module>,
}

struct Module {
    file: PathBuf,
    words: Vec<Word>,
    /// Each imported name, and where it is from.
    imports: BTreeMap<String, Names>,
    /// The imports that are re-exports of a child, by their names.
    re_exports: BTreeSet<String>,
}

impl Tree {
    /// The tree of modules below `root`, which is `src`.
    pub(crate) fn new(root: &Path, sources: Vec<(PathBuf, String)>) -> Self {
        let mut modules = BTreeMap::new();
        for (path, text) in sources {
            let file = path.strip_prefix(root).unwrap().to_owned();
            let words = words(&text).into_iter().map(|(_, word)| word).collect();
            let module = Module {
                words: without_tests(words),
                imports: BTreeMap::new(),
                re_exports: BTreeSet::new(),
                file,
            };
            modules.insert(names_of(&module.file), module);
        }
        let of_tests: Vec<_> = modules.iter().flat_map(test_files).collect();
        let is_of_tests = |own: &Names| of_tests.iter().any(|test| own.starts_with(test));
        modules.retain(|own, _| !is_of_tests(own));
        let names: BTreeSet<_> = modules.keys().cloned().collect();
        for (own, module) in &mut modules {
            module.read_imports(own, &names);
        }
        Self { modules }
    }

    /// The files that each file uses.
    pub(crate) fn uses(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let of = |(own, module): (&Names, &Module)| {
            let paths = module.paths(own).into_iter();
            let files = paths.map(|path| self.file_of(&path, 0));
            files.filter(|file| *file != module.file).collect()
        };
        let modules = self.modules.iter();
        modules.map(|one| (one.1.file.as_path(), of(one))).collect()
    }

    /// The file that defines what a path names. A name that is no module stands in the file of the
    /// module before it.
    fn file_of(&self, path: &[String], depth: usize) -> &Path {
        assert!(depth < 10, "re-exports in a circle: {path:?}");
        let ends = (0..=path.len()).rev();
        let (len, module) = ends
            .filter_map(|len| Some((len, self.modules.get(&path[..len])?)))
            .next()
            .expect("the crate's root");
        match path.get(len).and_then(|name| module.imports.get(name)) {
            Some(from) => {
                let rest = path[len + 1..].iter();
                let path: Names = from.iter().chain(rest).cloned().collect();
                self.file_of(&path, depth + 1)
            }
            None => &module.file,
        }
    }
}

/// The module of a file: `server/observe/stats/mod.rs` is `server::stats`.
fn names_of(file: &Path) -> Names {
    let plain = file.with_extension("");
    let names = plain.iter().map(|name| name.to_str().unwrap().to_owned());
    names
        .filter(|name| name != "mod" && name != "lib")
        .collect()
}

/// Leaves out `#[cfg(test)] mod … { … }`.
fn without_tests(mut words: Vec<Word>) -> Vec<Word> {
    let is_test = |words: &[Word]| {
        let names: Vec<_> = words.iter().filter_map(Word::name).collect();
        names.starts_with(&["cfg", "test", "mod"]) && words[0].is('#') && words[9].is('{')
    };
    while let Some(start) = words.windows(10).position(is_test) {
        let mut depth = 0;
        let is_end = |word: &Word| {
            depth += i32::from(word.is('{')) - i32::from(word.is('}'));
            depth == 0 && word.is('}')
        };
        let len = words[start..].iter().position(is_end).unwrap();
        words.drain(start..=start + len);
    }
    words
}

/// The children that a module declares for tests only: `#[cfg(test)] mod … ;`
fn test_files((own, module): (&Names, &Module)) -> Vec<Names> {
    let declarations = module.words.windows(10).filter_map(|words| {
        let names: Vec<_> = words.iter().filter_map(Word::name).collect();
        let is_test = names.starts_with(&["cfg", "test", "mod"]) && words[9].is(';');
        (is_test && words[0].is('#')).then(|| words[8].name())?
    });
    let children = declarations.map(|child| {
        let mut names = own.clone();
        names.push(child.to_owned());
        names
    });
    children.collect()
}

impl Module {
    fn read_imports(&mut self, own: &Names, modules: &BTreeSet<Names>) {
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            if word.name() == Some("use") {
                let is_public = is_public(&self.words[..at]);
                let mut found = Vec::new();
                at = read_tree(&self.words, at + 1, &[], &mut found);
                for (path, alias) in found {
                    let path = absolute(&path, own, &self.imports, modules);
                    if path.is_empty() {
                        continue; // Of another crate.
                    }
                    if is_public && path.len() > own.len() && path.starts_with(own) {
                        self.re_exports.insert(alias.clone());
                    }
                    self.imports.insert(alias, path);
                }
            }
            at += 1;
        }
        for child in modules {
            if child.len() == own.len() + 1 && child.starts_with(own) {
                let name = child.last().unwrap().clone();
                self.imports.entry(name).or_insert_with(|| child.clone());
            }
        }
    }

    /// The paths that the file uses.
    fn paths(&self, own: &Names) -> Vec<Names> {
        let mut paths = Vec::new();
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            if word.name() == Some("pub") && self.words.get(at + 1).is_some_and(|w| w.is('(')) {
                at += self.words[at..].iter().position(|w| w.is(')')).unwrap();
            } else if word.name() == Some("use") {
                at += self.words[at..].iter().position(|w| w.is(';')).unwrap();
            } else if word.name().is_some() {
                let mut path = Names::new();
                while let Some(name) = self.words.get(at).and_then(Word::name) {
                    path.push(name.to_owned());
                    if self.words.get(at + 1) != Some(&Word::Separator) {
                        break;
                    }
                    at += 2;
                }
                let is_method = path.len() == 1;
                let path = absolute(&path, own, &self.imports, &BTreeSet::new());
                if !is_method && !path.is_empty() {
                    paths.push(path);
                }
            }
            at += 1;
        }
        let is_child = |path: &Names| path.len() == own.len() + 1 && path.starts_with(own);
        for (name, path) in &self.imports {
            let count = self.words.iter().filter(|word| word.name() == Some(name));
            let is_only_named = self.re_exports.contains(name) || is_child(path);
            if !is_only_named || (self.re_exports.contains(name) && count.count() > 1) {
                paths.push(path.clone());
            }
        }
        paths
    }
}

/// Whether a declaration that follows these words is `pub`, in any of its forms.
fn is_public(before: &[Word]) -> bool {
    let start = before
        .iter()
        .rposition(|word| word.is(';') || word.is('}') || word.is('{'));
    let own = &before[start.map_or(0, |start| start + 1)..];
    own.iter().any(|word| word.name() == Some("pub"))
}

/// Reads the tree of a `use` declaration. Answers with the place after it.
fn read_tree(
    words: &[Word],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<(Names, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match &words[at] {
            Word::Name(name) if name == "as" => {
                let alias = words[at + 1].name().unwrap().to_owned();
                found.push((path, alias));
                return at + 2;
            }
            Word::Name(name) => path.push(name.clone()),
            Word::Separator => {}
            Word::Sign('{') => {
                at += 1;
                while !words[at].is('}') {
                    at = read_tree(words, at, &path, found);
                    if words[at].is(',') {
                        at += 1;
                    }
                }
                return at + 1;
            }
            // It uses the module. Which names of it is not known.
            Word::Sign('*') => {
                let alias = format!("* of {path:?}");
                found.push((path, alias));
                return at + 1;
            }
            Word::Sign(_) => {
                let mut last = path.last().unwrap().clone();
                if last == "self" {
                    path.pop();
                    last.clone_from(path.last().unwrap());
                }
                found.push((path, last));
                return at;
            }
        }
        at += 1;
    }
}

/// A path from the crate's root on. Empty where it is none of ours.
fn absolute(
    path: &[String],
    own: &Names,
    imports: &BTreeMap<String, Names>,
    modules: &BTreeSet<Names>,
) -> Names {
    let mut base = own.clone();
    let mut rest = path;
    let first = path.first().map_or("", String::as_str);
    if first == "crate" {
        base.clear();
        rest = &path[1..];
    } else if first == "super" || first == "self" {
        while let Some(step) = rest
            .first()
            .filter(|step| *step == "super" || *step == "self")
        {
            if step == "super" {
                base.pop();
            }
            rest = &rest[1..];
        }
    } else if let Some(from) = imports.get(first) {
        base.clone_from(from);
        rest = &path[1..];
    } else {
        base.push(first.to_owned());
        if !modules.contains(&base) {
            return Names::new();
        }
        rest = &path[1..];
    }
    base.into_iter().chain(rest.iter().cloned()).collect()
}

/// The same for folders: all files below `lock`, `wait`, `command`, `server/api` and the like are
/// one.
pub(crate) fn of_folders<'p>(
    uses: &BTreeMap<&'p Path, BTreeSet<&'p Path>>,
) -> BTreeMap<&'p Path, BTreeSet<&'p Path>> {
    let mut folders = BTreeMap::<_, BTreeSet<_>>::new();
    for (file, used) in uses {
        let own = folder_of(file);
        let others = used.iter().map(|file| folder_of(file));
        let others = others.filter(|other| *other != own);
        folders.entry(own).or_default().extend(others);
    }
    folders
}

/// The files right below `src` and `src/server` stand for themselves.
fn folder_of(file: &Path) -> &Path {
    let depth = if file.starts_with("server") { 2 } else { 1 };
    let below = file.iter().count().saturating_sub(depth);
    file.ancestors().nth(below).unwrap()
}

/// A shortest circle of files, if there is one: each uses the next, and the last uses the first.
pub(crate) fn circle<'p>(uses: &BTreeMap<&'p Path, BTreeSet<&'p Path>>) -> Option<Vec<&'p Path>> {
    let circles = uses.keys().filter_map(|start| circle_from(start, uses));
    circles.min_by_key(Vec::len)
}

fn circle_from<'p>(
    start: &'p Path,
    uses: &BTreeMap<&'p Path, BTreeSet<&'p Path>>,
) -> Option<Vec<&'p Path>> {
    let mut came_from = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for used in &uses[file] {
            if *used == start {
                let steps = std::iter::successors(Some(file), |at| came_from.get(at).copied());
                let mut files: Vec<_> = steps.collect();
                files.reverse();
                return Some(files);
            }
            if *used != start && !came_from.contains_key(used) {
                came_from.insert(*used, file);
                queue.push_back(*used);
            }
        }
    }
    None
}
