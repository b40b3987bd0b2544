use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{JoinHandle, sleep, spawn};

use super::*;

/// Two sockets of a connection over the loopback interface.
fn connection() -> (TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = Socket::from(listener.accept().unwrap().0);
    far.set_nonblocking(true).unwrap();
    far.set_out_of_band_inline(true).unwrap();
    far.set_linger(Some(Duration::ZERO)).unwrap();
    near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (near, far)
}

/// A client and a server, and a thread that splices between them until the connection is over.
fn spliced() -> (TcpStream, TcpStream, JoinHandle<io::Result<()>>) {
    let ((client, client_side), (server, server_side)) = (connection(), connection());
    let mut splice = Splice::new(client_side, server_side);
    let splicing = spawn(move || {
        let (mut pipes, counter) = (Pipes::default(), AtomicU64::new(0));
        loop {
            for end in [SpliceEnd::Client, SpliceEnd::Server] {
                // As EPOLLPRI announces it.
                let socket = if end == SpliceEnd::Client { &splice.client } else { &splice.server };
                let urgent = is_at_urgent(socket.as_fd());
                splice.note(end, Ready { read: true, write: true, urgent });
            }
            match splice.advance(&mut pipes, [&counter, &counter])? {
                Progress::Over => {
                    splice.finish();
                    return Ok(());
                }
                Progress::HasMore => {}
                Progress::Waits => sleep(Duration::from_millis(1)),
            }
        }
    });
    (client, server, splicing)
}

#[test]
fn bytes_and_both_ends_pass() {
    let (mut client, mut server, splicing) = spliced();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let sender = spawn({
        let (sent, mut client) = (sent.clone(), client.try_clone().unwrap());
        move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert!(received == sent);
    sender.join().unwrap();
    // The other half is still open.
    server.write_all(b"answer").unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
    splicing.join().unwrap().unwrap();
}

#[test]
fn an_urgent_byte_stays_urgent_and_in_its_place() {
    let (client, server, splicing) = spliced();
    let (client, server) = (Socket::from(client), Socket::from(server));
    client.send(b"before").unwrap();
    sleep(Duration::from_millis(50));
    client.send_out_of_band(b"!").unwrap();
    client.send(b"after").unwrap();
    sleep(Duration::from_millis(50));
    let mut urgent = [std::mem::MaybeUninit::uninit()];
    assert_eq!(server.recv_out_of_band(&mut urgent).unwrap(), 1);
    // SAFETY: one byte was received.
    assert_eq!(unsafe { urgent[0].assume_init() }, b'!');
    let mut rest = Vec::<u8>::new();
    while rest.len() < 11 {
        let mut part = [0; 64];
        let len = (&server).read(&mut part).unwrap();
        assert!(len > 0, "{rest:?}");
        rest.extend(&part[..len]);
    }
    assert_eq!(rest, b"beforeafter");
    drop(client);
    drop(server);
    // Both ends have closed, or one of them was reset by the other's close.
    let _ = splicing.join().unwrap();
}

#[test]
fn a_reset_is_an_error_and_resets_the_other_end() {
    let (client, mut server, splicing) = spliced();
    let client = Socket::from(client);
    client.send(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(splicing.join().unwrap().is_err());
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_receiver_that_does_not_read_stops_the_sender() {
    let (client, _server, _splicing) = spliced();
    client.set_nonblocking(true).unwrap();
    let (mut sent, mut blocked) = (0, 0);
    while blocked < 100 {
        match (&client).write(&[0; 65_536]) {
            Ok(len) => (sent, blocked) = (sent + len, 0),
            Err(_) => {
                blocked += 1;
                sleep(Duration::from_millis(5));
            }
        }
    }
    // Six buffers of sockets, of up to 6 MB each by the kernel's defaults, and a pipe.
    assert!(sent < 40_000_000, "{sent}");
}
