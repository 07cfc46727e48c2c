//! A worker as a process: its output with times, and the signals sent to it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::events::{assert_possible, Event};
use crate::fixture::{Program, LOCK, RESOURCE};
use crate::harness::wait_for;

/// A running worker. Dropping it ends the process.
pub struct Worker {
    child: Child,
    said: Arc<Mutex<Vec<(Instant, String)>>>,
    complained: Arc<Mutex<String>>,
    listeners: Vec<JoinHandle<()>>,
    command_line: String,
}

/// How a worker ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub events: Vec<(Instant, Event)>,
}

impl Worker {
    pub fn start(program: &Program, port: u16, options: &str) -> Self {
        let url = format!("redis://127.0.0.1:{port}");
        let mut command = Command::new(&program.run);
        command
            .args([program.variant, "--url", &url])
            .args(["--lock", LOCK, "--resource", RESOURCE])
            .args(options.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let command_line = format!("{command:?}");
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command_line}: {error}"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let complained = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let events = thread::spawn({
            let said = Arc::clone(&said);
            move || {
                for line in lines.map_while(Result::ok) {
                    said.lock().unwrap().push((Instant::now(), line));
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let complaints = thread::spawn({
            let complained = Arc::clone(&complained);
            move || {
                let mut some = [0; 4096];
                while let Ok(n @ 1..) = stderr.read(&mut some) {
                    let text = String::from_utf8_lossy(&some[..n]);
                    complained.lock().unwrap().push_str(&text);
                }
            }
        });
        Self {
            child,
            said,
            complained,
            listeners: vec![events, complaints],
            command_line,
        }
    }

    fn events(&self) -> Vec<(Instant, Event)> {
        let said = self.said.lock().unwrap().clone();
        let parse = |(at, line): &(Instant, String)| (*at, Event::parse(line));
        said.iter().map(parse).collect()
    }

    /// Waits until the worker prints an event that `choose` accepts. Returns it with its time.
    #[track_caller]
    fn wait<T>(&mut self, what: &str, choose: impl Fn(&Event) -> Option<T>) -> (Instant, T) {
        wait_for(&format!("a worker to say: {what}"), || {
            let has_ended = self.has_ended();
            let events = self.events();
            let found = events
                .iter()
                .find_map(|(at, event)| Some((*at, choose(event)?)));
            assert!(
                found.is_some() || !has_ended,
                "it ended and never said: {what}"
            );
            found
        })
    }

    /// The fence of the worker once it has one, with the time of its line.
    #[track_caller]
    pub fn granted(&mut self) -> (Instant, i64) {
        self.wait("granted", |event| match event {
            Event::Granted(fence) => Some(*fence),
            _ => None,
        })
    }

    #[track_caller]
    pub fn wrote(&mut self, number: usize) {
        let wanted = Event::Wrote(number);
        self.wait(&format!("{wanted:?}"), |event| {
            (*event == wanted).then_some(())
        });
    }

    /// The time at which it reported the loss of its lock.
    #[track_caller]
    pub fn lost(&mut self) -> Instant {
        let (at, ()) = self.wait("lost", |event| {
            matches!(event, Event::Lost(_)).then_some(())
        });
        at
    }

    /// Stops the worker, and returns when it has stopped. Until then it could still act.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("STOP");
        wait_for("a worker to stop", || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
            let has_stopped = |thread: fs::DirEntry| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                // The state follows the name, which is in brackets.
                stat.rsplit(')')
                    .next()
                    .is_none_or(|rest| rest.starts_with(" T"))
            };
            threads.flatten().all(has_stopped).then_some(())
        });
    }

    #[track_caller]
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// The signal must reach the program, not a shell around it.
    #[track_caller]
    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.is_ok_and(|s| s.success()), "kill -s {name}");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("to kill a worker");
        self.child.wait().expect("to reap a worker");
    }

    /// Whether it has ended and all of its output has been read.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait().unwrap().is_some();
        ended && self.listeners.iter().all(JoinHandle::is_finished)
    }

    /// Waits for its end, and checks that its output agrees with its exit status.
    #[track_caller]
    pub fn finish(mut self) -> Ended {
        wait_for("a worker to end", || self.has_ended().then_some(()));
        let status = self.child.wait().unwrap().code();
        let events = self.events();
        let story: Vec<_> = events.iter().map(|(_, event)| event.clone()).collect();
        assert_possible(&story, status);
        Ended { status, events }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            for listener in self.listeners.drain(..) {
                listener.join().ok();
            }
            let said = self.said.lock().unwrap();
            let lines: Vec<_> = said.iter().map(|(_, line)| line.as_str()).collect();
            eprintln!(
                "{}\n-- said:\n{}\n-- and beside:\n{}",
                self.command_line,
                lines.join("\n"),
                self.complained.lock().unwrap()
            );
        }
    }
}

impl Ended {
    fn has(&self, wanted: &Event) -> bool {
        self.events.iter().any(|(_, event)| event == wanted)
    }

    pub fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| which(event)).count()
    }

    pub fn writes(&self) -> usize {
        self.count(|event| matches!(event, Event::Wrote(_)))
    }

    /// Fails the test unless it did all its writes and then released.
    #[track_caller]
    pub fn assert_done(&self, writes: usize) {
        assert_eq!(self.status, Some(0), "{self:?}");
        assert_eq!(self.writes(), writes, "{self:?}");
    }

    /// Fails the test unless it reported the loss of its lock.
    #[track_caller]
    pub fn assert_lost(&self) {
        assert!(self.count(|e| matches!(e, Event::Lost(_))) == 1, "{self:?}");
    }

    /// Fails the test unless it stopped because its lock was lost or the resource refused its
    /// fence.
    #[track_caller]
    pub fn assert_late(&self, fence: i64) {
        let lost = self.count(|event| matches!(event, Event::Lost(_)));
        let refused = self.has(&Event::Refused(fence));
        assert!(lost == 1 || refused, "{self:?}");
    }

    /// Fails the test unless the resource refused this fence.
    #[track_caller]
    pub fn assert_refused(&self, fence: i64) {
        assert!(self.has(&Event::Refused(fence)), "{self:?}");
    }

    /// The time from its grant to its end.
    pub fn span(&self) -> Duration {
        let (first, last) = (self.events.first(), self.events.last());
        last.unwrap().0 - first.unwrap().0
    }
}
