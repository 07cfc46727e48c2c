//! Rust source as words: enough to find imports and the ends of functions. Comments and the
//! contents of literals are left out.

/// A word of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Name(String),
    /// `::`
    Separator,
    Sign(char),
}

impl Word {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Separator | Self::Sign(_) => None,
        }
    }

    pub(crate) fn is(&self, sign: char) -> bool {
        *self == Self::Sign(sign)
    }
}

/// The words of a file, each with its line, counted from 1.
pub(crate) fn words(text: &str) -> Vec<(usize, Word)> {
    let mut reader = Reader {
        rest: text,
        line: 1,
    };
    let mut words = Vec::new();
    while let Some(first) = reader.rest.chars().next() {
        let line = reader.line;
        if reader.skip_comment_or_literal(first) {
            continue;
        }
        if first.is_alphabetic() || first == '_' {
            let name = reader.take_while(|c| c.is_alphanumeric() || c == '_');
            words.push((line, Word::Name(name.to_owned())));
        } else if reader.rest.starts_with("::") {
            reader.take(2);
            words.push((line, Word::Separator));
        } else {
            reader.take(first.len_utf8());
            if !first.is_whitespace() {
                words.push((line, Word::Sign(first)));
            }
        }
    }
    words
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> Reader<'t> {
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn skip_comment_or_literal(&mut self, first: char) -> bool {
        if self.rest.starts_with("//") {
            self.take_while(|c| c != '\n');
            return true;
        }
        let prefix = self.rest.len() - self.rest.trim_start_matches(['b', 'c', 'r', '#']).len();
        let is_raw = self.rest[..prefix].contains('r');
        if prefix <= 4 && self.rest[prefix..].starts_with('"') {
            let hashes = self.rest[..prefix].matches('#').count();
            self.take(prefix + 1);
            self.skip_string(is_raw, hashes);
            return true;
        }
        first == '\'' && self.skip_char()
    }

    fn skip_string(&mut self, is_raw: bool, hashes: usize) {
        let end = format!("\"{}", "#".repeat(hashes));
        while !self.rest.is_empty() && !self.rest.starts_with(&end) {
            let is_escape = !is_raw && self.rest.starts_with('\\');
            let first = self.rest.chars().next().map_or(1, char::len_utf8);
            self.take(if is_escape { 2 } else { first });
        }
        self.take(end.len());
    }

    /// A lifetime is none: its name has no quote behind it.
    fn skip_char(&mut self) -> bool {
        let inside = &self.rest[1..];
        let len = match inside.strip_prefix('\\') {
            Some(escaped) => escaped[1..].find('\'').map(|end| end + 4),
            None => {
                let first = inside.chars().next().map_or(1, char::len_utf8);
                inside[first..].starts_with('\'').then_some(first + 2)
            }
        };
        match len {
            Some(len) => !self.take(len).is_empty(),
            None => !self.take(1).is_empty(),
        }
    }
}

/// The functions that have a body: name, first line, and number of lines.
pub(crate) fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let words = words(text);
    let starts = words.windows(2).enumerate().filter_map(|(at, pair)| {
        let name = pair[1].1.name()?;
        (pair[0].1.name() == Some("fn")).then_some((at, name))
    });
    let lengths = starts.filter_map(|(at, name)| {
        let first = words[at].0;
        let last = end_of_body(&words[at..])?;
        Some((name.to_owned(), first, last - first + 1))
    });
    lengths.collect()
}

/// The line of the last brace; `None` without a body.
fn end_of_body(words: &[(usize, Word)]) -> Option<usize> {
    let mut depth = 0;
    let mut is_in_body = false;
    for (line, word) in words {
        match word {
            Word::Sign('(' | '[' | '{') => {
                is_in_body |= depth == 0 && word.is('{');
                depth += 1;
            }
            Word::Sign(')' | ']' | '}') => depth -= 1,
            Word::Sign(';') if depth == 0 => return None,
            _ => {}
        }
        if is_in_body && depth == 0 {
            return Some(*line);
        }
    }
    None
}
