//! What is played: the modes of the guard, the faults, and the choices of a seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::setting;
use crate::harness::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Restart,
    Failover,
    Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The primary is killed and starts with nothing, with an older RDB, with the beginning of its
    /// append-only file.
    RestartEmpty,
    RestartRdb,
    RestartAof,
    /// The primary is killed, and a replica is promoted that lacks its newest grants.
    Behind,
    /// The same, and then the promoted one is killed before its guard ends.
    Twice,
    /// `FAILOVER`: nothing is lost.
    Planned,
    /// The old primary stands still during the promotion, and goes on within the slack.
    Stopped,
    /// The old primary goes on serving its clients within the slack.
    LivesOn,
    /// A replica is promoted that never got any data.
    Empty,
    /// The old primary loses its replicas, and serves its clients to the end of the round.
    CutOff,
}

use Fault::{
    Behind, CutOff, Empty, LivesOn, Planned, RestartAof, RestartEmpty, RestartRdb, Stopped, Twice,
};

const MODES: [Mode; 3] = [Mode::Restart, Mode::Failover, Mode::Quorum];

const FAULTS: [Fault; 10] = [
    RestartEmpty,
    RestartRdb,
    RestartAof,
    Behind,
    Twice,
    Planned,
    Stopped,
    LivesOn,
    Empty,
    CutOff,
];

const SLACK_MS: u64 = 500;
const FRESH_MS: u64 = 1_000;

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Failover => "failover",
            Self::Quorum => "quorum",
        }
    }

    /// By when after the promotion an old primary must have granted for the last time.
    pub fn slack_ms(self) -> Option<u64> {
        (self == Self::Failover).then_some(SLACK_MS)
    }
}

impl Fault {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub fn is_restart(self) -> bool {
        matches!(self, RestartEmpty | RestartRdb | RestartAof)
    }

    /// The first mode within whose conditions it is. Each mode includes the one before it.
    fn least_mode(self) -> Mode {
        match self {
            _ if self.is_restart() => Mode::Restart,
            CutOff => Mode::Quorum,
            _ => Mode::Failover,
        }
    }

    /// Whether the next primary lacks grants.
    pub fn loses(self) -> bool {
        self != Planned
    }
}

/// How the replica that is promoted comes to lack the newest grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It follows nobody for a while.
    Unlinked,
    /// It stands still for a while.
    Stopped,
    /// It lacks what was on its way.
    InFlight,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub mode: Mode,
    pub is_guarded: bool,
    pub fault: Fault,
    pub lag: Lag,
    /// The longest lease.
    pub max_ttl_ms: u64,
}

impl Plan {
    pub fn random(&self, of: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ (of << 48))
    }

    /// The module's arguments, and options of the server.
    pub fn options(&self) -> Vec<String> {
        let max_ttl_ms = self.max_ttl_ms;
        let guard = match (self.is_guarded, self.mode) {
            (false, _) => String::new(),
            (true, Mode::Restart) => "guard restart".into(),
            (true, Mode::Failover) => format!("guard failover guard-slack {SLACK_MS}"),
            (true, Mode::Quorum) => {
                format!("guard quorum guard-members 3 guard-fresh {FRESH_MS}")
            }
        };
        let aof = match self.fault {
            RestartAof => "--appendonly yes --auto-aof-rewrite-percentage 0",
            _ => "",
        };
        // The servers' own defaults differ.
        let replication =
            "--repl-diskless-sync yes --repl-diskless-sync-delay 0 --appendfsync everysec";
        let line = format!("max-ttl {max_ttl_ms} {guard} {replication} {aof}");
        line.split_whitespace().map(str::to_string).collect()
    }

    /// C: for how long after the failover there is no new grant.
    pub fn wait_ms(&self) -> u64 {
        let max_ttl_ms = self.max_ttl_ms;
        match self.mode {
            _ if !self.is_guarded => 0,
            Mode::Quorum => (max_ttl_ms + FRESH_MS) * 104 / 100,
            _ if self.fault.is_restart() => max_ttl_ms + 1_000,
            _ => max_ttl_ms + SLACK_MS,
        }
    }
}

/// What the settings allow.
pub struct Choice {
    kinds: Vec<Kind>,
    pairs: Vec<(Mode, Fault)>,
}

impl Choice {
    pub fn from_settings() -> Self {
        let words = |name: &str, default: &str| -> Vec<String> {
            let text = setting(name).unwrap_or_else(|| default.to_string());
            text.split(',').map(str::to_string).collect()
        };
        let kinds = [
            Kind::Redis6_2,
            Kind::Redis7_0,
            Kind::Redis8_2,
            Kind::Valkey8_0,
            Kind::Valkey9,
        ];
        let servers = words("CAMPAIGN_SERVERS", "redis,valkey");
        let modes = words("CAMPAIGN_MODES", "restart,failover,quorum");
        let faults = words("CAMPAIGN_FAULTS", "");
        let is_server = |kind: &Kind| servers.iter().any(|name| kind.name().starts_with(name));
        let pairs = MODES
            .iter()
            .filter(|mode| modes.iter().any(|name| name == mode.name()))
            .flat_map(|mode| FAULTS.map(|fault| (*mode, fault)))
            .filter(|(mode, fault)| *mode >= fault.least_mode());
        let choice = Self {
            kinds: kinds.into_iter().filter(is_server).collect(),
            pairs: pairs
                .filter(|(_, fault)| faults.iter().any(|name| fault.name().starts_with(name)))
                .collect(),
        };
        let is_empty = choice.kinds.is_empty() || choice.pairs.is_empty();
        assert!(!is_empty, "the settings leave nothing to play");
        choice
    }

    /// The rounds go through all servers, modes and faults.
    pub fn plan(&self, number: u64, seed: u64, is_guarded: bool) -> Plan {
        let of = |many: usize| usize::try_from(number % (many as u64)).unwrap();
        let kind = self.kinds[of(self.kinds.len())];
        let all = of(self.kinds.len() * self.pairs.len());
        let (mode, fault) = self.pairs[all / self.kinds.len()];
        let mut random = StdRng::seed_from_u64(seed);
        let lag = match random.random_range(0..8) {
            0 => Lag::InFlight,
            1 | 2 => Lag::Stopped,
            _ => Lag::Unlinked,
        };
        // After a promotion the last second of a hold does not count. So only longer leases outlive it.
        let max_ttl_ms = if random.random_range(0..3) == 0 {
            2_500
        } else {
            1_000
        };
        Plan {
            seed,
            kind,
            mode,
            is_guarded,
            fault,
            lag,
            max_ttl_ms,
        }
    }
}
