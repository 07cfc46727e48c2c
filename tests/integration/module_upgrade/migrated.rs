//! A lock in a later version of the format is migrated to a server with this release. The later
//! release is made by a proxy between the two servers, which raises the version on the way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use redis_lock::lock::codec::LATEST_VERSION;

use crate::harness::{aof, packed, Kind, Server};
use crate::hostile::payload::Payload;

on_every_server![a_lock_that_the_target_cannot_read_stays_where_it_is];

fn a_lock_that_the_target_cannot_read_stays_where_it_is(kind: Kind) {
    let source = Server::start_with(kind, &["--rdbcompression", "no"]);
    let target = Server::start(kind);
    let mut c = source.client();
    let fence = c.int("LOCK.ACQUIRE k me 100000000");
    let proxy = proxy_to(target.port);

    let migrate = format!("MIGRATE 127.0.0.1 {proxy} k 0 5000");
    c.refused_saying(&migrate, "Bad data format");
    assert_eq!(target.client().int("DBSIZE"), 0);
    assert_eq!(c.int("LOCK.ACQUIRE k me 100000000"), fence);

    // As it is the target takes it, so it was the version that was refused.
    let migrated = c.text(&format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port));
    assert_eq!(migrated, "OK");
    assert_eq!(target.client().holders("k"), ["me"]);
}

/// Passes everything on to a server, and raises the version of each lock in a RESTORE. Returns its
/// port.
fn proxy_to(target: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for source in listener.incoming().flatten() {
            let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
            let (mut replies, mut answered) =
                (target.try_clone().unwrap(), source.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut answered));
            // A source that hangs up ends its connection only.
            pass_on(source, target).ok();
        }
    });
    port
}

fn pass_on(mut source: TcpStream, mut target: TcpStream) -> std::io::Result<()> {
    let (mut bytes, mut done) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    loop {
        let len = source.read(&mut buffer)?;
        if len == 0 {
            return target.shutdown(Shutdown::Both);
        }
        bytes.extend(&buffer[..len]);
        let mut end = 0;
        for command in aof::commands(&bytes[done..]) {
            end = command.end;
            target.write_all(&raised(&command.args))?;
        }
        done += end;
    }
}

/// The command as a later release would send it.
fn raised(args: &[&[u8]]) -> Vec<u8> {
    let mut args: Vec<_> = args.iter().map(|arg| arg.to_vec()).collect();
    if args[0].eq_ignore_ascii_case(b"RESTORE") {
        let mut payload = Payload::read(&args[3]);
        payload.record[0] = LATEST_VERSION + 1;
        args[3] = payload.write();
    }
    packed(&args)
}
