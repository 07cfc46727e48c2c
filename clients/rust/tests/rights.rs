//! Users with no more rights than the crate needs.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

mod common;

use std::thread;
use std::time::Duration;

use common::{Admin, BOUND, Cluster, Server};
use redis_lock_client::{Options, Result, aio, sync};

const LOCKS: &str = "+lock.acquire +rwlock.rlock +rwlock.wlock +lock.macquire +lock.release \
                     +lock.renew +lock.check +lock.exec";
/// `aio` listens for its grants.
const LISTEN: &str = "+subscribe +ping &redis-lock:*";
/// The command that a test runs under its lock.
const INNER: &str = "+set";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn user(admin: &mut Admin, rules: &[&str]) {
    let mut words = vec!["ACL", "SETUSER", "worker", "reset", "on", ">secret"];
    words.extend(["~jobs:*", "resetchannels", "-@all"]);
    words.extend(rules.iter().flat_map(|rules| rules.split_whitespace()));
    admin.run(&words);
}

fn as_worker(url: &str) -> String {
    url.replace("://", "://worker:secret@")
}

/// What was refused, but for the names of libraries, which are sent and need not be accepted.
fn refusals(admin: &mut Admin) -> Vec<String> {
    let log = admin.run(&["ACL", "LOG"]);
    let entries = log
        .as_sequence()
        .unwrap()
        .iter()
        .map(|entry| format!("{entry:?}"));
    entries
        .filter(|entry| !entry.contains("client|setinfo"))
        .collect()
}

/// One of each kind, while another client holds the lock that is waited for.
fn each_operation(locks: &sync::LockClient, admin: &mut Admin) -> Result<()> {
    let guard = locks.lock("jobs:{1}").lock()?;
    guard.renew()?;
    assert!(guard.check()?);
    let () = guard.exec(redis::cmd("SET").arg("jobs:{1}v").arg(1))?;
    guard.unlock()?;
    let mut guard = locks.rwlock("jobs:{1}").read()?;
    guard.upgrade()?;
    guard.downgrade()?;
    guard.unlock()?;
    locks.semaphore("jobs:{1}", 2).acquire()?.unlock()?;
    locks
        .multi_lock(["jobs:{1}", "jobs:{1}2"])
        .lock()?
        .unlock()?;
    locks
        .run_once("jobs:{1}", ms(1_000), ms(1), |_| ())?
        .unwrap();
    // The least time may hold it for a moment more.
    locks.lock("jobs:{1}").lock()?.unlock()?;

    admin.run(&["LOCK.ACQUIRE", "jobs:{1}", "holder", "60000"]);
    assert!(locks.lock("jobs:{1}").lock_timeout(ms(50))?.is_none());
    let lock = locks.lock("jobs:{1}");
    let waiting = thread::spawn(move || lock.lock_timeout(BOUND)?.unwrap().unlock());
    admin.await_waiters("jobs:{1}", 1);
    admin.run(&["LOCK.RELEASE", "jobs:{1}", "holder"]);
    waiting.join().unwrap()
}

async fn each_operation_of_tasks(locks: &aio::LockClient, admin: &mut Admin) -> Result<()> {
    let guard = locks.lock("jobs:{1}").lock().await?;
    guard.renew().await?;
    assert!(guard.check().await?);
    let () = guard
        .exec(redis::cmd("SET").arg("jobs:{1}v").arg(1))
        .await?;
    guard.unlock().await?;
    let mut guard = locks.rwlock("jobs:{1}").read().await?;
    guard.upgrade().await?;
    guard.downgrade().await?;
    guard.unlock().await?;
    locks
        .semaphore("jobs:{1}", 2)
        .acquire()
        .await?
        .unlock()
        .await?;
    let both = locks.multi_lock(["jobs:{1}", "jobs:{1}2"]);
    both.lock().await?.unlock().await?;
    let job = locks.run_once("jobs:{1}", ms(1_000), ms(1), async |_: &aio::Guard| ());
    job.await?.unwrap();
    locks.lock("jobs:{1}").lock().await?.unlock().await?;

    admin.run(&["LOCK.ACQUIRE", "jobs:{1}", "holder", "60000"]);
    assert!(locks.lock("jobs:{1}").lock_timeout(ms(50)).await?.is_none());
    let lock = locks.lock("jobs:{1}");
    let waiting = tokio::spawn(async move {
        let guard = lock.lock_timeout(BOUND).await?.unwrap();
        guard.unlock().await
    });
    admin.await_waiters("jobs:{1}", 1);
    admin.run(&["LOCK.RELEASE", "jobs:{1}", "holder"]);
    waiting.await.unwrap()
}

#[test]
fn a_worker_needs_the_locks_commands_only() {
    let server = Server::start();
    let mut admin = server.admin();
    user(&mut admin, &[LOCKS, INNER]);
    admin.run(&["ACL", "LOG", "RESET"]);
    let locks = sync::LockClient::open(as_worker(&server.url()), Options::default()).unwrap();
    each_operation(&locks, &mut admin).unwrap();
    let refusals = refusals(&mut admin);
    assert!(refusals.is_empty(), "{refusals:?}");
}

/// The user of the project's documents, who has neither several locks nor a channel.
const DOCUMENTED: &str =
    "+lock.acquire +rwlock.wlock +rwlock.rlock +lock.renew +lock.release +ping";

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_of_the_documents_locks_and_waits() {
    let server = Server::start();
    let mut admin = server.admin();
    user(&mut admin, &[DOCUMENTED]);
    let url = as_worker(&server.url());
    let blocking = sync::LockClient::open(url.clone(), Options::default()).unwrap();
    let locks = aio::LockClient::open(url, Options::default()).unwrap();
    admin.run(&["LOCK.ACQUIRE", "jobs:1", "holder", "60000"]);
    let lock = blocking.lock("jobs:1");
    let waiting = thread::spawn(move || lock.lock_timeout(BOUND)?.unwrap().unlock());
    admin.await_waiters("jobs:1", 1);
    let lock = locks.rwlock("jobs:1");
    let waiting_too = tokio::spawn(async move {
        let guard = lock.read_timeout(BOUND).await?.unwrap();
        guard.renew().await?;
        guard.unlock().await
    });
    admin.await_waiters("jobs:1", 2);
    admin.run(&["LOCK.RELEASE", "jobs:1", "holder"]);
    waiting.join().unwrap().unwrap();
    waiting_too.await.unwrap().unwrap();
    blocking
        .semaphore("jobs:1", 2)
        .acquire()
        .unwrap()
        .unlock()
        .unwrap();
    let ran = blocking.run_once("jobs:1", ms(1_000), ms(1), |_| 7);
    assert_eq!(ran.unwrap(), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_tasks_needs_a_channel_too() {
    let server = Server::start();
    let mut admin = server.admin();
    user(&mut admin, &[LOCKS, INNER, LISTEN]);
    admin.run(&["ACL", "LOG", "RESET"]);
    let (said, count) = common::counter::<str>();
    let options = Options::default().on_fallback(count);
    let locks = aio::LockClient::open(as_worker(&server.url()), options).unwrap();
    each_operation_of_tasks(&locks, &mut admin).await.unwrap();
    let refusals = refusals(&mut admin);
    assert!(refusals.is_empty(), "{refusals:?}");
    assert_eq!(said.load(std::sync::atomic::Ordering::SeqCst), 0);

    // Without it connections wait.
    user(&mut admin, &[LOCKS, INNER]);
    let locks = aio::LockClient::open(as_worker(&server.url()), Options::default()).unwrap();
    each_operation_of_tasks(&locks, &mut admin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_a_cluster_needs_the_slots_too() {
    let cluster = Cluster::start();
    let slot_of_jobs = cluster.nodes[0].admin().int(&["CLUSTER", "KEYSLOT", "1"]);
    let owner = [5_460, 10_922, 16_383]
        .iter()
        .position(|last| slot_of_jobs <= *last);
    for node in &cluster.nodes {
        let rules = [LOCKS, INNER, "+cluster|slots +asking"];
        user(&mut node.admin(), &rules);
        node.admin().run(&["ACL", "LOG", "RESET"]);
    }
    let urls: Vec<String> = cluster.urls().iter().map(|url| as_worker(url)).collect();
    let mut admin = cluster.nodes[owner.unwrap()].admin();
    let locks = sync::LockClient::cluster(urls.clone(), Options::default()).unwrap();
    each_operation(&locks, &mut admin).unwrap();
    for node in &cluster.nodes {
        // Some versions of redis-rs before 1.8 send READONLY, and need it no more than others.
        let listen = "+ssubscribe +ping +readonly &redis-lock:*";
        user(
            &mut node.admin(),
            &[LOCKS, INNER, "+cluster|slots +asking", listen],
        );
        let refusals = refusals(&mut node.admin());
        assert!(refusals.is_empty(), "{refusals:?}");
    }
    let (said, count) = common::counter::<str>();
    let options = Options::default().on_fallback(count);
    let locks = aio::LockClient::cluster(urls.clone(), options).unwrap();
    each_operation_of_tasks(&locks, &mut admin).await.unwrap();
    for node in &cluster.nodes {
        let refusals = refusals(&mut node.admin());
        assert!(refusals.is_empty(), "{refusals:?}");
    }
    assert_eq!(said.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_worker_of_the_fallback_needs_the_commands_of_its_scripts() {
    let server = Server::start_without_module();
    let mut admin = server.admin();
    user(&mut admin, &["+eval +set +get +pexpire +del"]);
    let options = Options::default().fallback(true);
    let locks = sync::LockClient::open(as_worker(&server.url()), options).unwrap();
    let guard = locks.lock("jobs:1").lock().unwrap();
    guard.renew().unwrap();
    assert!(guard.check().unwrap());
    assert!(locks.lock("jobs:1").try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    let refusals = refusals(&mut admin);
    assert!(refusals.is_empty(), "{refusals:?}");
}
