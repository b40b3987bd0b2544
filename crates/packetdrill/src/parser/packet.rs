//! Packets: `< S 0:0(0) win 65535 <mss 1000>`.

use holdover_wire::{AccurateEcn, AccurateEcnOrder, EcnCounter, Flags};

use super::{Parsed, Parser};
use crate::ast::{Body, IcmpSpec, IpInfo, PacketSpec, TcpOption, TcpSpec, Tos};
use crate::error::ScriptError;
use crate::token::Token;

/// Protocols and dialects, by a word in the place of flags.
const BY_FLAGS: [(&str, &str); 3] = [("sctp", "SCTP"), ("udplite", "UDP-Lite"), ("addr", "MPTCP")];
/// MPTCP's options in the forks of packetdrill.
const MPTCP_OPTIONS: [&str; 13] = [
    "mpcapable",
    "mp_capable",
    "mp_capable_no_cs",
    "mp_join_syn",
    "mp_join_syn_ack",
    "mp_join_ack",
    "dss",
    "add_address",
    "remove_address",
    "mp_prio",
    "mp_fail",
    "mp_fastclose",
    "mp_reset",
];

/// The maximum length of the options in a TCP header.
const MAX_OPTION_BYTES: usize = 40;

impl Parser<'_> {
    pub(super) fn packet(&mut self) -> Parsed<PacketSpec> {
        let (from, _) = self.place();
        let inbound = self.take_sign('<');
        if !inbound {
            self.sign('>')?;
        }
        let mut wrapped = self.wrapping()?;
        let ip = self.ip_info()?;
        if inbound && ip.tos == Some(Tos::EctAny) {
            return Err(self.error_at(from, "[ect01] with outbound packets only", "an inbound packet"));
        }
        if self.take_word("encap") {
            wrapped = Some("PSP");
            while self.peek_word().is_some_and(|word| matches!(word.as_str(), "psp" | "spi")) {
                self.at += 1;
            }
            self.u32("the SPI")?;
        }
        // The first versions of packetdrill had the quoted segment of an ICMP error before its type.
        let quoted = self.quoted_before_type()?;
        let body = if quoted.is_some() && self.peek_word().as_deref() != Some("icmp") {
            return Err(self.expected("'icmp' after the quoted segment"));
        } else if self.take_word("udp") {
            self.ports()?;
            self.parenthesized_length()?;
            Body::Udp
        } else if self.take_word("icmp") {
            let icmp = self.icmp()?;
            Body::Icmp(IcmpSpec { quoted: quoted.or(icmp.quoted), ..icmp })
        } else {
            Body::Tcp(self.tcp(inbound)?)
        };
        Ok(PacketSpec { inbound, ip, wrapped, body })
    }

    /// Outer headers, each up to its colon.
    fn wrapping(&mut self) -> Parsed<Option<&'static str>> {
        let mut wrapped = None;
        while let Some(word) = self.peek_word() {
            wrapped = match word.as_str() {
                "ipv4" | "ipv6" => Some("IP in IP"),
                "gre" | "GREv0" => Some("GRE"),
                "mpls" => Some("MPLS"),
                _ => break,
            };
            while !self.take_sign(':') {
                if self.next().is_none() {
                    return Err(self.expected("':' after the outer header"));
                }
            }
        }
        Ok(wrapped)
    }

    fn ip_info(&mut self) -> Parsed<IpInfo> {
        let mut info = IpInfo::default();
        let close = match self.peek_sign() {
            Some('(') => ')',
            Some('[') if !self.is_quoted_segment() => ']',
            _ => return Ok(info),
        };
        self.at += 1;
        loop {
            let (from, _) = self.place();
            match self.word("an IP annotation")?.as_str() {
                "noecn" => info.tos = Some(Tos::Ecn(0)),
                "ect1" => info.tos = Some(Tos::Ecn(1)),
                "ect0" => info.tos = Some(Tos::Ecn(2)),
                "ce" => info.tos = Some(Tos::Ecn(3)),
                "ect01" => info.tos = Some(Tos::EctAny),
                "tos" => info.tos = Some(Tos::Byte(self.u8("the TOS byte")?)),
                "ttl" => info.ttl = Some(self.u8("the TTL")?),
                // nplab's names of IPv6.
                "class" => {
                    info.tos = Some(Tos::Byte(self.u8("the traffic class")?));
                    info.is_ipv6 = true;
                }
                "hlim" => {
                    info.ttl = Some(self.u8("the hop limit")?);
                    info.is_ipv6 = true;
                }
                "flowlabel" => {
                    self.number("the flow label", 0xf_ffff)?;
                    info.flow_label = true;
                }
                word => {
                    let what = "noecn, ect0, ect1, ect01, ce, tos, ttl, class, hlim or flowlabel";
                    return Err(self.error_at(from, what, format!("'{word}'")));
                }
            }
            if !self.take_sign(',') {
                break;
            }
        }
        self.sign(close)?;
        Ok(info)
    }

    /// Whether sequence numbers follow in brackets, not annotations.
    fn is_quoted_segment(&self) -> bool {
        matches!(self.tokens.get(self.at + 1).map(|next| &next.token), Some(Token::Integer(_)))
    }

    fn quoted_before_type(&mut self) -> Parsed<Option<(u32, u16)>> {
        if self.peek_sign() != Some('[') || !self.is_quoted_segment() {
            return Ok(None);
        }
        self.at += 1;
        let quoted = self.sequence()?;
        self.sign(']')?;
        Ok(Some(quoted))
    }

    fn ports(&mut self) -> Parsed<Option<(u16, u16)>> {
        if !matches!(self.peek(), Some(Token::Integer(_))) {
            return Ok(None);
        }
        let from = self.u16("the source port")?;
        self.sign('>')?;
        Ok(Some((from, self.u16("the destination port")?)))
    }

    fn parenthesized_length(&mut self) -> Parsed<u16> {
        self.sign('(')?;
        let len = self.u16("the length of the data")?;
        self.sign(')')?;
        Ok(len)
    }

    fn icmp(&mut self) -> Parsed<IcmpSpec> {
        let kind = self.word("the ICMP type")?;
        let code = self.peek_word().filter(|word| !matches!(word.as_str(), "mtu" | "id"));
        self.at += usize::from(code.is_some());
        let mtu = if self.take_word("mtu") { Some(self.u32("the MTU")?) } else { None };
        if self.take_word("id") {
            self.u16("the echo identifier")?;
        }
        let mut quoted = Some((0, 0));
        if self.take_sign('[') {
            quoted = if self.take_word("udp") || self.take_word("raw") {
                self.parenthesized_length()?;
                None
            } else {
                Some(self.sequence()?)
            };
            self.sign(']')?;
        }
        Ok(IcmpSpec { kind, code, mtu, quoted })
    }

    /// `1:1001(1000)`: the first sequence number, and the length of the data.
    fn sequence(&mut self) -> Parsed<(u32, u16)> {
        let (from, _) = self.place();
        let start = self.u32("the first sequence number")?;
        self.sign(':')?;
        let end = self.u32("the end of the sequence numbers")?;
        let len = self.parenthesized_length()?;
        if u64::from(end) != u64::from(start) + u64::from(len) {
            let what = format!("sequence numbers {len} apart, as the length says");
            return Err(self.error_at(from, &what, format!("{start}:{end}({len})")));
        }
        Ok((start, len))
    }

    fn tcp(&mut self, inbound: bool) -> Parsed<TcpSpec> {
        let ports = self.ports()?;
        let (flags, ace) = self.flags()?;
        let (seq, len) = self.sequence()?;
        if self.peek_sign() == Some('!') {
            return Err(self.of_dialect("absolute sequence numbers", self.expected("'ack', 'win' or options")));
        }
        let ack = if self.take_word("ack") { self.u32("the acknowledgment number")? } else { 0 };
        let (from, _) = self.place();
        let window = if self.take_word("win") { Some(self.u16("the window")?) } else { None };
        if inbound && window.is_none() {
            return Err(self.expected_at(from, "'win' in an inbound packet", self.peek().as_ref()));
        }
        let urgent = if self.take_word("urg") { self.u16("the urgent pointer")? } else { 0 };
        let options = self.tcp_options(inbound)?;
        if self.is_in_udp() {
            return Err(self.of_dialect("TCP in UDP", self.expected("another event")));
        }
        Ok(TcpSpec { ports, flags, ace, seq, len, ack, window, urgent, options })
    }

    /// Whether `/ udp (` follows.
    fn is_in_udp(&self) -> bool {
        let token = |ahead: usize| self.tokens.get(self.at + ahead).map(|spanned| &spanned.token);
        token(0) == Some(&Token::Sign('/'))
            && matches!(token(1), Some(Token::Word(word)) if word == "udp")
            && token(2) == Some(&Token::Sign('('))
    }

    /// Letters, a point for ACK, and optionally a digit for the ACE field.
    fn flags(&mut self) -> Parsed<(Flags, bool)> {
        let (from, _) = self.place();
        let mut text = self.peek_word().unwrap_or_default();
        self.at += usize::from(!text.is_empty());
        match self.peek() {
            Some(Token::Sign('.')) => text.push('.'),
            Some(Token::Float(number)) if number.starts_with('.') => text.push_str(&number),
            Some(Token::Sign('-')) if text.is_empty() => {
                self.at += 1;
                return Ok((Flags::empty(), false));
            }
            found if text.is_empty() => return Err(self.expected_at(from, "TCP flags", found.as_ref())),
            _ => return self.checked_flags(from, &text),
        }
        self.at += 1;
        self.checked_flags(from, &text)
    }

    fn checked_flags(&mut self, from: usize, text: &str) -> Parsed<(Flags, bool)> {
        let flags = read_flags(text);
        flags.ok_or_else(|| {
            let error = self.error_at(from, "flags of FSRPEWAU. or one digit for ACE", format!("'{text}'"));
            match BY_FLAGS.iter().find(|(word, _)| *word == text) {
                Some((_, dialect)) => self.of_dialect(dialect, error),
                None => error,
            }
        })
    }

    /// An error at a construct of another protocol or dialect, which the script's verdict names.
    fn of_dialect(&mut self, dialect: &'static str, error: ScriptError) -> ScriptError {
        self.dialect = Some(dialect);
        error
    }

    fn tcp_options(&mut self, inbound: bool) -> Parsed<Option<Vec<TcpOption>>> {
        // A following incoming packet begins with '<' as well, but after a time.
        if !self.take_sign('<') {
            return Ok(Some(Vec::new()));
        }
        let (from, _) = self.place();
        if self.peek() == Some(Token::Ellipsis) {
            self.at += 1;
            self.sign('>')?;
            return if inbound { Err(self.error_at(from, "options in an inbound packet", "'...'")) } else { Ok(None) };
        }
        let mut options = Vec::new();
        loop {
            options.push(self.tcp_option()?);
            if !self.take_sign(',') {
                break;
            }
        }
        self.sign('>')?;
        let bytes: usize = options.iter().map(TcpOption::wire_len).sum();
        if bytes > MAX_OPTION_BYTES || !bytes.is_multiple_of(4) {
            let what = "options of at most 40 bytes, padded to a multiple of 4";
            return Err(self.error_at(from, what, format!("{bytes} bytes")));
        }
        Ok(Some(options))
    }

    fn tcp_option(&mut self) -> Parsed<TcpOption> {
        let (from, _) = self.place();
        Ok(match self.word("a TCP option")?.as_str() {
            "nop" => TcpOption::Nop,
            "eol" => TcpOption::End,
            "mss" => TcpOption::Mss(self.u16("the MSS")?),
            "wscale" => TcpOption::WindowScale(self.u8("the window scale")?),
            "sackOK" => TcpOption::SackPermitted,
            "sack" => TcpOption::Sack(self.sack_blocks()?),
            "TS" => self.timestamps()?,
            "FO" => TcpOption::FastOpen(self.hex_blob(false)?),
            "FOEXP" => TcpOption::FastOpenExperimental(self.hex_blob(false)?),
            "md5" => TcpOption::Md5(self.hex_blob(true)?),
            "ECN" => TcpOption::AccurateEcn(self.accurate_ecn()?),
            word => {
                let what = "a TCP option: mss, wscale, sackOK, sack, TS, FO, FOEXP, md5, ECN, nop or eol";
                let error = self.error_at(from, what, format!("'{word}'"));
                let is_mptcp = MPTCP_OPTIONS.contains(&word);
                return Err(if is_mptcp { self.of_dialect("MPTCP", error) } else { error });
            }
        })
    }

    fn sack_blocks(&mut self) -> Parsed<Vec<(u32, u32)>> {
        let mut blocks = Vec::new();
        while blocks.is_empty() || matches!(self.peek(), Some(Token::Integer(_))) {
            let left = self.u32("the left edge of a SACK block")?;
            self.sign(':')?;
            blocks.push((left, self.u32("the right edge of a SACK block")?));
        }
        Ok(blocks)
    }

    fn timestamps(&mut self) -> Parsed<TcpOption> {
        if !self.take_word("val") {
            return Err(self.expected("'val'"));
        }
        let val = self.u32("the timestamp")?;
        if !self.take_word("ecr") {
            return Err(self.expected("'ecr'"));
        }
        Ok(TcpOption::Timestamps { val, ecr: self.u32("the echoed timestamp")? })
    }

    fn hex_blob(&mut self, required: bool) -> Parsed<Vec<u8>> {
        let (from, _) = self.place();
        let text = match self.peek() {
            Some(Token::Word(text) | Token::Integer(text)) => text,
            found if required => return Err(self.expected_at(from, "hexadecimal digits", found.as_ref())),
            _ => return Ok(Vec::new()),
        };
        self.at += 1;
        let bytes = text.as_bytes().chunks(2).map(|pair| match pair {
            &[high, low] => Some((digit(high)? << 4) | digit(low)?),
            _ => None,
        });
        bytes
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| self.error_at(from, "an even number of hexadecimal digits", text))
    }

    fn accurate_ecn(&mut self) -> Parsed<AccurateEcn> {
        let (from, _) = self.place();
        let mut names = Vec::new();
        let mut fields = Vec::new();
        while let Some(word) = self.peek_word() {
            let counter = match word.as_str() {
                "e0b" => EcnCounter::Ect0,
                "ceb" => EcnCounter::Ce,
                "e1b" => EcnCounter::Ect1,
                _ => break,
            };
            self.at += 1;
            names.push(counter);
            fields.push(self.number("a count of bytes", AccurateEcn::COUNTER_MASK.into())? as u32);
        }
        let order = match names.first() {
            Some(EcnCounter::Ect0) => AccurateEcnOrder::Zero,
            Some(EcnCounter::Ect1) => AccurateEcnOrder::One,
            _ => return Err(self.expected("e0b or e1b")),
        };
        if names.iter().ne(order.counters().iter().take(names.len())) {
            return Err(self.expected("the counters in the order e0b, ceb, e1b or the reverse"));
        }
        AccurateEcn::new(order, &fields)
            .map_err(|error| self.error_at(from, "at most three counters of 24 bits", error.to_string()))
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The flags, and whether a digit gives AE, CWR and ECE.
fn read_flags(text: &str) -> Option<(Flags, bool)> {
    let mut flags = Flags::empty();
    let mut ace = None;
    for letter in text.chars() {
        flags |= match letter {
            '.' => Flags::ACK,
            'F' => Flags::FIN,
            'S' => Flags::SYN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            'U' => Flags::URG,
            'E' if ace.is_none() => Flags::ECE,
            'W' if ace.is_none() => Flags::CWR,
            'A' if ace.is_none() => Flags::AE,
            '0'..='7' if ace.is_none() && !flags.intersects(Flags::ECE | Flags::CWR | Flags::AE) => {
                ace = letter.to_digit(8);
                continue;
            }
            _ => return None,
        };
    }
    let bit = |mask: u32, flag: Flags| if ace.unwrap_or(0) & mask != 0 { flag } else { Flags::empty() };
    flags |= bit(4, Flags::AE) | bit(2, Flags::CWR) | bit(1, Flags::ECE);
    Some((flags, ace.is_some()))
}

impl TcpOption {
    /// The length on the wire.
    pub(crate) fn wire_len(&self) -> usize {
        match self {
            Self::Nop | Self::End => 1,
            Self::Mss(_) => 4,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 2,
            Self::Sack(blocks) => 2 + 8 * blocks.len(),
            Self::Timestamps { .. } => 10,
            Self::FastOpen(cookie) => 2 + cookie.len(),
            Self::FastOpenExperimental(cookie) => 4 + cookie.len(),
            Self::Md5(digest) => 2 + digest.len(),
            Self::AccurateEcn(option) => option.wire_len(),
        }
    }
}
