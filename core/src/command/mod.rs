//! The commands: one file for each. It has the command's grammar, its description as data
//! ([`spec::Spec`]) and its parser. A page of docs/commands says what it does. A command is parsed
//! completely before the lock is looked at. The machine decides it, by the rules of the lock, and
//! the shell the internal ones and those about the server.
//!
//! [`Command`] is the table of all. What is done with every command walks [`Command::ALL`].

pub mod acquire;
pub mod apply;
pub mod apply_release;
mod args;
pub mod cancel;
pub mod check;
mod error;
pub mod exec;
pub mod guard;
pub mod info;
pub mod log;
pub mod macquire;
pub mod once;
#[cfg(test)]
mod properties;
pub mod release;
pub mod renew;
mod reply;
pub mod resetstat;
pub mod rlock;
pub mod spec;
pub mod top;
pub mod wlock;
pub mod writable;

pub use args::integer;
pub use args::Args;
pub use error::Error;
pub use reply::Reply;

use spec::Spec;

/// Makes [`Command`] from rows of `Variant in file: parser`.
macro_rules! commands {
    ($($command:ident in $file:ident: $parse:expr;)*) => {
        /// Every command. A new one goes to the end, because fuzz/corpus knows them by their place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $(#[doc = concat!("[`mod@", stringify!($file), "`]")] $command,)*
        }

        impl Command {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$command),*];

            /// The description for the server.
            pub const fn spec(self) -> &'static Spec {
                match self { $(Self::$command => &$file::SPEC),* }
            }

            /// Only parses: what follows the name and, if word 1 is the only key, the key.
            pub fn parse(self, words: &[&[u8]]) -> Result<(), Error> {
                let args = Args::new(words.iter().copied());
                match self { $(Self::$command => $parse(args).map(drop)),* }
            }

            /// The file with the grammar.
            #[cfg(test)]
            const fn source(self) -> &'static str {
                match self { $(Self::$command => include_str!(concat!(stringify!($file), ".rs"))),* }
            }
        }
    };
}

commands! {
    Acquire in acquire: |args| acquire::Acquire::parse(acquire::WANTED, args);
    Wlock in wlock: |args| acquire::Acquire::parse(wlock::WANTED, args);
    Rlock in rlock: |args| acquire::Acquire::parse(rlock::WANTED, args);
    Macquire in macquire: macquire::Macquire::parse;
    Release in release: release::parse;
    Cancel in cancel: cancel::parse;
    Renew in renew: renew::parse;
    Check in check: check::parse;
    Exec in exec: exec::parse;
    Info in info: info::parse;
    Top in top: top::parse;
    Log in log: log::parse;
    ResetStat in resetstat: Args::finish;
    Apply in apply: |mut args: Args<_>| apply::parse(std::iter::from_fn(|| args.optional()));
    ApplyRelease in apply_release: |mut args: Args<_>| args.token().and_then(|_| args.finish());
    Writable in writable: Args::finish;
    Guard in guard: guard::parse;
    Once in once: once::parse;
}
