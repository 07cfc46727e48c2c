//! A [`Spec`] describes a command to the server. It is data, in the same file as the command's
//! grammar. The shell registers it, and `COMMAND INFO`, `COMMAND DOCS` and `COMMAND GETKEYS` answer
//! from it. The pages of docs/commands say the same, and a test compares them.
//!
//! The arity is not written down. It follows from the arguments, so the two cannot disagree.

#[cfg(test)]
mod tests;

use std::ffi::CStr;

/// The description of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// In lower case.
    pub name: &'static CStr,
    /// One sentence.
    pub summary: &'static CStr,
    /// The time complexity, in the O notation.
    pub complexity: &'static CStr,
    /// The version of the module in which the command came.
    pub since: &'static CStr,
    /// How the server treats the command.
    pub flags: &'static [Flag],
    /// Where the keys are among the arguments.
    pub keys: KeyWords,
    /// All arguments, keys included, in their order.
    pub args: &'static [Arg],
    /// Words for clients and proxies, with a space between:
    /// <https://redis.io/docs/latest/develop/reference/command-tips/>.
    pub tips: Option<&'static CStr>,
    /// The changes since the command came, oldest first.
    pub history: &'static [Change],
}

/// A change of a command.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The version of the module that made it.
    pub since: &'static CStr,
    /// One sentence on the change.
    pub what: &'static CStr,
}

/// The tip of a command that may answer something else on the same data. Fences and tokens made by
/// the server are new each time, and time passes.
pub const NONDETERMINISTIC: Option<&CStr> = Some(c"nondeterministic_output");

/// How the server treats a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// It may change data: replicas refuse it to clients.
    Write,
    /// It changes nothing: replicas answer it too.
    ReadOnly,
    /// It is for operators.
    Admin,
    /// The server refuses it while memory is short.
    DenyOom,
    /// Scripts cannot call it.
    DenyScript,
    /// It runs while the server loads its data.
    AllowLoading,
    /// It runs on a replica that has lost its primary and must not serve old data.
    AllowStale,
    /// Its time does not grow with the data, or grows with the logarithm.
    Fast,
    /// It may block its client.
    Blocking,
}

impl Flag {
    /// The word for it in the module API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::ReadOnly => "readonly",
            Self::Admin => "admin",
            Self::DenyOom => "deny-oom",
            Self::DenyScript => "deny-script",
            Self::AllowLoading => "allow-loading",
            Self::AllowStale => "allow-stale",
            Self::Fast => "fast",
            Self::Blocking => "blocking",
        }
    }

    /// The ACL categories of a command with it.
    const fn categories(self) -> Option<&'static str> {
        match self {
            Self::Write => Some("write"),
            Self::ReadOnly => Some("read"),
            Self::Admin => Some("admin dangerous"),
            Self::Fast => Some("fast"),
            Self::Blocking => Some("blocking"),
            Self::DenyOom | Self::DenyScript | Self::AllowLoading | Self::AllowStale => None,
        }
    }
}

/// Where the keys of a command are among its words. The word 0 is the command's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWords {
    /// There are none.
    None,
    /// Word 1 is the only key. It may be missing where its argument is optional.
    One(KeyUse),
    /// Words 1 and 2 are the keys.
    Two(KeyUse, KeyUse),
    /// A word says how many keys come right after it.
    ///
    /// Servers use it for ACL and COMMAND GETKEYS, but not for the routing in a cluster. So the
    /// handler is asked for the keys, as with [`KeyWords::ByCallback`].
    Counted {
        /// The use of each key.
        key_use: KeyUse,
        /// The word that is the number of keys.
        count_at: i32,
    },
    /// The handler names the keys when the server asks it. Word 1 is always one of them.
    ///
    /// The handler can say with each key what it does to it (`RM_KeyAtPosWithFlags`). Where it does
    /// not, the server asks for all rights to the key.
    ByCallback {
        /// The use of the key that is word 1.
        first: KeyUse,
    },
}

/// The use of a key by a command. The ACL rules `%R~` and `%W~` follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Needs the permission to read.
    Reads,
    /// Needs the permission to write.
    Updates,
    /// Needs the permission to write.
    Deletes,
}

impl KeyWords {
    /// The words that are the first and the last key, and how many words after a key the next one
    /// comes: the form that every server knows. 0 where there is none, or where no number can say
    /// it.
    pub const fn position(self) -> (i32, i32, i32) {
        match self {
            Self::None | Self::Counted { .. } => (0, 0, 0),
            Self::One(_) | Self::ByCallback { .. } => (1, 1, 1),
            Self::Two(..) => (1, 2, 1),
        }
    }

    /// Whether the server must ask the handler for the keys.
    pub const fn need_callback(self) -> bool {
        match self {
            Self::None | Self::One(_) | Self::Two(..) => false,
            Self::Counted { .. } | Self::ByCallback { .. } => true,
        }
    }
}

/// An argument of a command, or a group of arguments.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in the documentation.
    pub name: &'static CStr,
    /// Its kind.
    pub kind: Kind,
    /// The literal word in front of it, or the argument itself for [`Kind::PureToken`].
    pub token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be repeated. The token stands in front of the first one only.
    pub is_multiple: bool,
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A key.
    Key,
    /// Any bytes.
    Text,
    /// An integer.
    Integer,
    /// A literal word.
    PureToken,
    /// Exactly one of these.
    OneOf(&'static [Arg]),
    /// All of these, in this order.
    Block(&'static [Arg]),
}

impl Arg {
    /// The only key of most commands.
    pub const KEY: Self = Self::key(c"key");

    const fn new(name: &'static CStr, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            is_optional: false,
            is_multiple: false,
        }
    }

    /// A key.
    pub const fn key(name: &'static CStr) -> Self {
        Self::new(name, Kind::Key)
    }

    /// Any bytes.
    pub const fn text(name: &'static CStr) -> Self {
        Self::new(name, Kind::Text)
    }

    /// An integer.
    pub const fn integer(name: &'static CStr) -> Self {
        Self::new(name, Kind::Integer)
    }

    /// The literal word `token`.
    pub const fn pure_token(name: &'static CStr, token: &'static CStr) -> Self {
        Self::new(name, Kind::PureToken).after(token)
    }

    /// Exactly one of `args`.
    pub const fn one_of(name: &'static CStr, args: &'static [Self]) -> Self {
        Self::new(name, Kind::OneOf(args))
    }

    /// All of `args`, in this order.
    pub const fn block(name: &'static CStr, args: &'static [Self]) -> Self {
        Self::new(name, Kind::Block(args))
    }

    /// The same with the literal word `token` in front of it.
    pub const fn after(self, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// The same, but it may be left out.
    pub const fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }

    /// The same, but it may be repeated.
    pub const fn multiple(self) -> Self {
        Self {
            is_multiple: true,
            ..self
        }
    }

    /// Its part of [`Spec::syntax`].
    fn syntax(&self) -> String {
        let value = match self.kind {
            Kind::PureToken => String::new(),
            Kind::OneOf(args) => syntax_of_all(args).join("|"),
            Kind::Block(args) => syntax_of_all(args).join(" "),
            Kind::Key | Kind::Text | Kind::Integer => self.name.to_string_lossy().into(),
        };
        let value = match (self.is_multiple, self.is_optional && self.token.is_none()) {
            (true, true) => format!("{value} ..."),
            (true, false) => format!("{value} [{value} ...]"),
            (false, _) => value,
        };
        let token = self.token.unwrap_or_default().to_string_lossy();
        let whole = format!("{token} {value}");
        match self.is_optional {
            true => format!("[{}]", whole.trim()),
            false => whole.trim().into(),
        }
    }

    /// The fewest words that it can be, and whether it can be more.
    fn words(&self) -> (i32, bool) {
        let (least, varies) = match self.kind {
            Kind::Key | Kind::Text | Kind::Integer => (1, false),
            // The token is the word, and is counted below.
            Kind::PureToken => (0, false),
            Kind::Block(args) => words_of_all(args),
            Kind::OneOf(args) => {
                let words = || args.iter().map(Self::words);
                let least = words().map(|(least, _)| least).min().unwrap_or(0);
                (least, words().any(|other| other != (least, false)))
            }
        };
        if self.is_optional {
            return (0, true);
        }
        let with_token = least.saturating_add(self.token.is_some().into());
        (with_token, varies || self.is_multiple)
    }
}

fn words_of_all(args: &[Arg]) -> (i32, bool) {
    args.iter().map(Arg::words).fold((0, false), |sum, arg| {
        (sum.0.saturating_add(arg.0), sum.1 || arg.1)
    })
}

fn syntax_of_all(args: &[Arg]) -> Vec<String> {
    args.iter().map(Arg::syntax).collect()
}

impl Spec {
    /// The grammar as redis-cli prints it.
    pub fn syntax(&self) -> String {
        let mut words = vec![self.name.to_string_lossy().to_uppercase()];
        words.extend(syntax_of_all(self.args));
        words.join(" ")
    }

    /// The number of words, with the name, as COMMAND INFO counts: negative where more may follow.
    pub fn arity(&self) -> i32 {
        let (least, varies) = words_of_all(self.args);
        let least = least.saturating_add(1);
        if varies {
            least.saturating_neg()
        } else {
            least
        }
    }

    /// The ACL categories, with a space between, but for the module's own. A server derives them
    /// from the flags of its own commands, and none from those of a module's.
    pub fn categories(&self) -> String {
        let flags = self.flags.iter();
        let mut all: Vec<_> = flags.filter_map(|flag| flag.categories()).collect();
        if !self.flags.contains(&Flag::Fast) {
            all.push("slow");
        }
        all.join(" ")
    }

    /// The flags in the words of the module API, with a space between.
    pub fn flags(&self) -> String {
        let mut words: Vec<_> = self.flags.iter().map(|f| f.name()).collect();
        if self.keys.need_callback() {
            words.push("getkeys-api");
        }
        words.join(" ")
    }
}
