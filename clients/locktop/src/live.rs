//! The terminal: keys and reports come in, screens go out.

use std::io;
use std::sync::mpsc::{channel, Sender};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::terminal::disable_raw_mode;
use ratatui::DefaultTerminal;
use redis::ConnectionInfo;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::app::{App, Effect};
use crate::args::Args;
use crate::source::{self, Report, Watch, Wishes};
use crate::view::{self, Colours};

enum Input {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    Report(Report),
    /// The terminal has gone.
    Closed,
    /// The program is to end.
    Signal(i32),
}

pub(crate) fn run(args: &Args, seeds: Vec<ConnectionInfo>, wishes: Wishes) -> io::Result<()> {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = Colours { on: !no_colour };
    let (inputs, inbox) = channel();
    let (reports, of_servers) = channel();
    let mut app = App::new(wishes.clone(), args.read_only, args.cluster);
    let mut watch = Watch::new(wishes, reports.clone());
    if args.cluster {
        source::follow_cluster(seeds, reports);
    } else {
        app.model.set_servers(&watch.set_servers(&seeds));
    }
    let forward = inputs.clone();
    thread::spawn(move || {
        while of_servers
            .recv()
            .is_ok_and(|report| forward.send(Input::Report(report)).is_ok())
        {}
    });
    // Before the terminal is changed, so that no signal finds it changed and kills.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let forward = inputs.clone();
    thread::spawn(move || read_signals(signals, &forward));
    let mut terminal = ratatui::try_init()?;
    thread::spawn(move || read_terminal(&inputs));
    let end = serve(&mut terminal, &mut app, &mut watch, &inbox, colours);
    ratatui::restore();
    match end? {
        End::Quit => Ok(()),
        // The shell sees that a signal has ended the program, as without a handler.
        End::Signal(signal) => emulate_default_handler(signal),
    }
}

enum End {
    Quit,
    Signal(i32),
}

fn serve(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    watch: &mut Watch,
    inbox: &std::sync::mpsc::Receiver<Input>,
    colours: Colours,
) -> io::Result<End> {
    loop {
        terminal.draw(|frame| view::draw(frame, app, colours))?;
        let Ok(first) = inbox.recv() else {
            return Ok(End::Quit);
        };
        // What has come meanwhile is one screen and not several.
        for input in std::iter::once(first).chain(inbox.try_iter()) {
            if let Some(end) = handle(input, app, watch) {
                return Ok(end);
            }
        }
    }
}

/// Whether the program ends, and how.
fn handle(input: Input, app: &mut App, watch: &mut Watch) -> Option<End> {
    match input {
        Input::Resized => {}
        Input::Closed => return Some(End::Quit),
        Input::Signal(signal) => return Some(End::Signal(signal)),
        Input::Report(report) => on_report(report, app, watch),
        Input::Key(key) => match app.on_key(key) {
            Effect::None => {}
            Effect::Quit => return Some(End::Quit),
            Effect::End(server, claim) => watch.end(&server, claim),
        },
    }
    watch.set_wishes(&app.wishes);
    None
}

fn on_report(report: Report, app: &mut App, watch: &mut Watch) {
    match report {
        Report::Looked { server, result } => app.update(&server, *result),
        Report::Ended(text) => app.message = text,
        Report::NoNodes(error) => app.no_nodes = Some(error),
        Report::Nodes(nodes) => {
            app.no_nodes = None;
            app.model.set_servers(&watch.set_servers(&nodes));
        }
    }
}

/// A terminal that takes no output, as after Ctrl-S, holds the program up no longer than this.
const PATIENCE: Duration = Duration::from_secs(1);

fn read_signals(mut signals: Signals, inputs: &Sender<Input>) {
    for signal in signals.forever() {
        let _ = inputs.send(Input::Signal(signal));
        thread::sleep(PATIENCE);
        let _ = disable_raw_mode();
        let _ = emulate_default_handler(signal);
    }
}

fn read_terminal(inputs: &Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::Closed,
        };
        let is_last = matches!(input, Input::Closed);
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}
