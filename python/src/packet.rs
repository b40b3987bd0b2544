//! A packet, as a mechanism in Python sees and changes it.

use bytes::Bytes;
use holdover_filter::tcp_mut;
use holdover_wire::{Flags, Packet, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A packet. Numbers are those on the wire; what a packet does not have is `None`.
#[pyclass(name = "Packet", module = "holdover._holdover")]
#[derive(Clone)]
pub(crate) struct PyPacket {
    pub(crate) packet: Packet,
    pub(crate) changed: bool,
}

/// The letters of flags, as tcpdump has them.
const LETTERS: [(char, Flags); 9] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('e', Flags::AE),
    ('.', Flags::ACK),
];

impl PyPacket {
    pub(crate) fn new(packet: Packet) -> Self {
        Self { packet, changed: false }
    }

    fn segment(&mut self) -> PyResult<&mut Segment> {
        self.changed = true;
        tcp_mut(&mut self.packet).ok_or_else(|| PyTypeError::new_err("the packet carries no TCP segment in the clear"))
    }
}

#[pymethods]
impl PyPacket {
    /// A pure ACK, to send.
    #[staticmethod]
    #[pyo3(signature = (src, src_port, dst, dst_port, *, seq, ack, window, timestamps=None, ttl=64, traffic_class=0))]
    #[allow(clippy::too_many_arguments)]
    fn pure_ack(
        src: &str,
        src_port: u16,
        dst: &str,
        dst_port: u16,
        seq: u32,
        ack: u32,
        window: u16,
        timestamps: Option<(u32, u32)>,
        ttl: u8,
        traffic_class: u8,
    ) -> PyResult<Self> {
        let address = |text: &str| {
            text.parse::<std::net::IpAddr>().map_err(|_| PyValueError::new_err(format!("\"{text}\" is no IP address")))
        };
        let (src, dst) = (address(src)?, address(dst)?);
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(PyValueError::new_err("the addresses are of different families"));
        }
        let timestamps = timestamps.map(|(val, ecr)| Timestamps { val, ecr });
        let segment = Segment {
            src_port,
            dst_port,
            seq: Seq::new(seq),
            ack: Seq::new(ack),
            flags: Flags::ACK,
            window,
            urgent: 0,
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            payload: Bytes::new(),
        };
        let mut packet = Packet::new(src, dst, segment);
        (packet.ttl, packet.traffic_class) = (ttl, traffic_class);
        Ok(Self::new(packet))
    }

    fn copy(&self) -> Self {
        self.clone()
    }

    fn __repr__(&self) -> String {
        format!("<Packet {}>", self.packet)
    }

    fn __str__(&self) -> String {
        self.packet.to_string()
    }

    #[getter]
    fn src(&self) -> String {
        self.packet.src.to_string()
    }

    #[getter]
    fn dst(&self) -> String {
        self.packet.dst.to_string()
    }

    #[getter]
    fn ttl(&self) -> u8 {
        self.packet.ttl
    }

    #[setter]
    fn set_ttl(&mut self, ttl: u8) {
        (self.packet.ttl, self.changed) = (ttl, true);
    }

    #[getter]
    fn traffic_class(&self) -> u8 {
        self.packet.traffic_class
    }

    #[setter]
    fn set_traffic_class(&mut self, class: u8) {
        (self.packet.traffic_class, self.changed) = (class, true);
    }

    #[getter]
    fn length(&self) -> usize {
        self.packet.wire_len()
    }

    #[getter]
    fn is_tcp(&self) -> bool {
        self.packet.tcp().is_some()
    }

    #[getter]
    fn is_pure_ack(&self) -> bool {
        self.packet.tcp().is_some_and(Segment::is_pure_ack)
    }

    #[getter]
    fn src_port(&self) -> Option<u16> {
        self.packet.tcp().map(|segment| segment.src_port)
    }

    #[getter]
    fn dst_port(&self) -> Option<u16> {
        self.packet.tcp().map(|segment| segment.dst_port)
    }

    #[getter]
    fn seq(&self) -> Option<u32> {
        self.packet.tcp().map(|segment| segment.seq.value())
    }

    #[setter]
    fn set_seq(&mut self, seq: u32) -> PyResult<()> {
        self.segment()?.seq = Seq::new(seq);
        Ok(())
    }

    #[getter]
    fn seq_len(&self) -> Option<u32> {
        self.packet.tcp().map(Segment::seq_len)
    }

    #[getter]
    fn payload_length(&self) -> Option<usize> {
        self.packet.tcp().map(|segment| segment.payload.len())
    }

    #[getter]
    fn ack(&self) -> Option<u32> {
        self.packet.tcp().map(|segment| segment.ack.value())
    }

    #[setter]
    fn set_ack(&mut self, ack: u32) -> PyResult<()> {
        self.segment()?.ack = Seq::new(ack);
        Ok(())
    }

    #[getter]
    fn flags(&self) -> Option<String> {
        self.packet.tcp().map(|segment| segment.flags.to_string())
    }

    #[setter]
    fn set_flags(&mut self, letters: &str) -> PyResult<()> {
        let mut flags = Flags::empty();
        for letter in letters.chars() {
            let Some((_, flag)) = LETTERS.iter().find(|(known, _)| *known == letter) else {
                let known: String = LETTERS.iter().map(|(letter, _)| letter).collect();
                return Err(PyValueError::new_err(format!(
                    "there is no flag \"{letter}\"; flags are letters of \"{known}\""
                )));
            };
            flags |= *flag;
        }
        self.segment()?.flags = flags;
        Ok(())
    }

    #[getter]
    fn window(&self) -> Option<u16> {
        self.packet.tcp().map(|segment| segment.window)
    }

    #[setter]
    fn set_window(&mut self, window: u16) -> PyResult<()> {
        self.segment()?.window = window;
        Ok(())
    }

    #[getter]
    fn window_scale(&self) -> Option<u8> {
        self.packet.tcp()?.options.window_scale
    }

    #[getter]
    fn mss(&self) -> Option<u16> {
        self.packet.tcp()?.options.mss
    }

    #[getter]
    fn timestamps(&self) -> Option<(u32, u32)> {
        self.packet.tcp()?.options.timestamps.map(|stamps| (stamps.val, stamps.ecr))
    }

    #[setter]
    fn set_timestamps(&mut self, stamps: Option<(u32, u32)>) -> PyResult<()> {
        self.segment()?.options.timestamps = stamps.map(|(val, ecr)| Timestamps { val, ecr });
        Ok(())
    }

    #[getter]
    fn sack(&self) -> Option<Vec<(u32, u32)>> {
        let blocks = self.packet.tcp()?.options.sack;
        Some(blocks.iter().map(|block| (block.start.value(), block.end.value())).collect())
    }

    #[setter]
    fn set_sack(&mut self, blocks: Vec<(u32, u32)>) -> PyResult<()> {
        let mut sack = SackBlocks::EMPTY;
        for (start, end) in blocks {
            if !sack.push(SeqRange::new(Seq::new(start), Seq::new(end))) {
                return Err(PyValueError::new_err(format!("a segment holds at most {} SACK blocks", SackBlocks::MAX)));
            }
        }
        self.segment()?.options.sack = sack;
        Ok(())
    }
}
