//! A pcapng capture of a TUN device, from the kernel's side, as by `tcpdump` in the namespace.

use std::fmt;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use holdover_base::{Duration, Instant};
use holdover_wire::CaptureError;
use holdover_wire::pcapng::{self, Interface, InterfaceId, Record, Writer};

use crate::wall_clock::WallClock;

/// A direction on the TUN device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunDirection {
    /// From the kernel to the endpoint.
    FromKernel,
    /// From the endpoint to the kernel.
    ToKernel,
}

/// A capture with one interface.
pub(crate) struct Capture {
    writer: Writer<Box<dyn Write + Send>>,
    interface: InterfaceId,
}

impl Capture {
    /// Begins a capture whose time stamps are the times of `clock` as calendar time.
    pub(crate) fn begin(out: Box<dyn Write + Send>, name: &str, clock: WallClock) -> Result<Self, CaptureError> {
        // A clock before 1970 is not reported as an error: the capture then begins in 1970.
        let since_1970 = Duration::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let start = since_1970 - clock.now().saturating_since(Instant::ZERO);
        let application = concat!("holdover ", env!("CARGO_PKG_VERSION"));
        let mut writer = Writer::new(out, application)?.with_start(start);
        let interface = writer.add_interface(&Interface::new(name))?;
        Ok(Self { writer, interface })
    }

    /// Records one packet, which may be malformed by corruption.
    pub(crate) fn record(
        &mut self,
        at: Instant,
        direction: TunDirection,
        packet: &[u8],
        comment: &str,
    ) -> Result<(), CaptureError> {
        let direction = match direction {
            TunDirection::FromKernel => pcapng::CaptureDirection::Outbound,
            TunDirection::ToKernel => pcapng::CaptureDirection::Inbound,
        };
        let record = Record { direction: Some(direction), comment, ..Record::new(at, self.interface) };
        self.writer.write_bytes(&record, packet, packet.len())
    }

    pub(crate) fn flush(&mut self) -> Result<(), CaptureError> {
        self.writer.flush()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("interface", &self.interface).finish_non_exhaustive()
    }
}
