//! Notifications to the service manager (`sd_notify(3)`): one datagram each to the socket named in the environment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use holdover_base::Duration;

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Configures the notifier from `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_environment() -> Self {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let text = |name| std::env::var(name).ok();
        let is_for_us = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let micros = text("WATCHDOG_USEC").filter(|_| is_for_us).and_then(|micros| micros.parse().ok());
        let watchdog = micros.filter(|&micros| micros > 0).map(Duration::from_micros);
        match open(&path) {
            Ok(socket) => Self { socket: Some(socket), watchdog },
            Err(error) => {
                tracing::warn!(%error, "cannot use NOTIFY_SOCKET");
                Self::default()
            }
        }
    }

    /// A service manager at the other end of a socket, with this watchdog interval.
    #[cfg(test)]
    pub(crate) fn over(socket: UnixDatagram, watchdog: Duration) -> Self {
        Self { socket: Some(socket), watchdog: Some(watchdog) }
    }

    /// How often to notify the watchdog: twice per interval.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|every| every / 2)
    }

    /// Reports a new state, such as `READY=1`.
    pub fn notify(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::debug!(%error, state, "cannot notify the service manager");
        }
    }
}

fn open(path: &OsString) -> io::Result<UnixDatagram> {
    let bytes = path.as_os_str().as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(OsStr::from_bytes(bytes))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_abstract_sockets_are_notified() {
        let place = std::env::temp_dir().join(format!("holdover-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&place);
        let name = format!("holdover-notify-{}", std::process::id());
        let by_path = UnixDatagram::bind(&place).unwrap();
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_address).unwrap();
        for (path, listener) in [(place.clone().into_os_string(), by_path), (format!("@{name}").into(), by_name)] {
            let notifier = Notifier { socket: Some(open(&path).unwrap()), watchdog: None };
            notifier.notify("READY=1");
            let mut buffer = [0; 64];
            let heard = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..heard], b"READY=1");
        }
        std::fs::remove_file(&place).unwrap();
        Notifier::default().notify("READY=1");
    }
}
