//! The command line.

use std::time::Duration;

use clap::Parser;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::text::escape;

/// A live view of the locks of redis-lock servers.
#[derive(Clone, Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Args {
    /// host:port, redis://…, rediss://… or unix:///path; several for several servers
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    pub(crate) addresses: Vec<String>,

    /// Find all primaries of the cluster from these addresses, and follow its changes
    #[arg(long)]
    pub(crate) cluster: bool,

    /// The user's name, where the address has none
    #[arg(long)]
    user: Option<String>,

    /// The password; better in the environment, where other users of the machine cannot see it
    #[arg(long, env = "REDISCLI_AUTH", hide_env_values = true)]
    password: Option<String>,

    /// Show the locks of this database
    #[arg(long, default_value_t = 0, conflicts_with = "all_databases")]
    pub(crate) db: u32,

    /// Show the locks of each database that has keys
    #[arg(long)]
    pub(crate) all_databases: bool,

    /// Show also locks that nobody waits for, found by SCAN
    #[arg(long)]
    pub(crate) all: bool,

    /// How often to look, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    interval: u64,

    /// How many locks to ask each server for, in each database
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) top: u32,

    /// Look once, print a table and end
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: print a JSON document instead of a table
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// Never release a lock by force
    #[arg(long)]
    pub(crate) read_only: bool,
}

impl Args {
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval)
    }

    /// The servers of the command line, each once.
    pub(crate) fn servers(&self) -> Result<Vec<ConnectionInfo>, String> {
        let mut servers: Vec<ConnectionInfo> = Vec::new();
        for address in &self.addresses {
            let server = self.server(address)?;
            if servers
                .iter()
                .all(|other| name_of(other) != name_of(&server))
            {
                servers.push(server);
            }
        }
        Ok(servers)
    }

    fn server(&self, address: &str) -> Result<ConnectionInfo, String> {
        // The address may hold a password, so no error shows it.
        let wrong = |why: &str| format!("an address is wrong: {why}");
        let url = if address.contains("://") {
            address.to_owned()
        } else {
            format!("redis://{address}")
        };
        let info = url
            .as_str()
            .into_connection_info()
            .map_err(|error| wrong(&error.to_string()))?;
        let mut login = info
            .redis_settings()
            .clone()
            .set_db(0)
            .set_skip_set_lib_name();
        if login.username().is_none() && login.password().is_none() {
            if let Some(user) = &self.user {
                login = login.set_username(user);
            }
        }
        if login.password().is_none() {
            if let Some(password) = &self.password {
                // An empty REDISCLI_AUTH is no password, unless a user is named.
                if !password.is_empty() || login.username().is_some() {
                    login = login.set_password(password);
                }
            }
        }
        Ok(info.set_redis_settings(login))
    }
}

/// `host:port` or the path of the socket: what a server is called. Nodes of a cluster say that
/// themselves, so it is escaped.
pub(crate) fn name_of(info: &ConnectionInfo) -> String {
    let name = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => "?".to_owned(),
    };
    escape(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Args {
        Args::try_parse_from([&["locktop"], words].concat()).unwrap()
    }

    fn names(words: &[&str]) -> Vec<String> {
        parse(words)
            .servers()
            .unwrap()
            .iter()
            .map(name_of)
            .collect()
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn an_address_has_many_forms() {
        assert_eq!(names(&[]), ["127.0.0.1:6379"]);
        assert_eq!(
            names(&[
                "db",
                "a:1",
                "redis://b:2/3",
                "[::1]:4",
                "unix:///tmp/s",
                "a:1"
            ]),
            ["db:6379", "a:1", "b:2", "[::1]:4", "/tmp/s"]
        );
        assert!(parse(&["a:b:c"]).servers().is_err());
        assert!(parse(&["http://a"]).servers().is_err());
    }

    #[test]
    fn an_error_does_not_show_a_password() {
        let error = parse(&["redis://me:secret@a:b"]).servers().unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn the_address_knows_better_who_logs_in() {
        let login = |words: &[&str]| {
            let servers = parse(words).servers().unwrap();
            let login = servers[0].redis_settings();
            let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
            (text(login.username()), text(login.password()))
        };
        let own = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        let both = ["--user", "me", "--password", "pw"];
        assert_eq!(login(&[&["a:1"], &both[..]].concat()), own("me", "pw"));
        assert_eq!(
            login(&[&["redis://you:x@a:1"], &both[..]].concat()),
            own("you", "x")
        );
        assert_eq!(
            login(&["redis://you@a:1", "--password", "pw"]),
            own("you", "pw")
        );
    }

    #[test]
    fn what_contradicts_is_refused() {
        let refused: [&[&str]; 5] = [
            &["--db", "1", "--all-databases"],
            &["--json"],
            &["--interval", "5"],
            &["--top", "0"],
            &["--nonsense"],
        ];
        for words in refused {
            let error = Args::try_parse_from([&["locktop"], words].concat()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words:?}");
        }
    }
}
