//! The signs by which a mobile host announces a predicted disconnection to a gateway (the thesis on Freeze-TCP,
//! sections 4.6.1 and 4.6.2).

use core::net::IpAddr;

use holdover_wire::{Flags, Packet};

/// The sign in a mobile host's packets that predicts its disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WarningSign {
    /// An ACK with a window of zero. The gateway reads TCP headers and rewrites nothing.
    #[default]
    Window,
    /// The reserved flag of the IPv4 header, which the mobile host sets (`freeze` with `ip_flag`). The gateway clears it on
    /// everything that it forwards, and sets it on packets from its buffer, so that the mobile host does not answer these
    /// with a zero window. IPv6 has no such flag, so there is no sign.
    IpFlag,
}

/// The sign of one packet of a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// A disconnection is predicted.
    Warning,
    /// The link works.
    Working,
}

impl WarningSign {
    /// Reads the sign from a packet of the mobile host, and clears the flag. `None` if the packet has neither.
    pub(crate) fn take(self, packet: &mut Packet) -> Option<Shown> {
        match self {
            Self::Window => {
                let segment = packet.tcp()?;
                let is_plain_ack =
                    segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN | Flags::RST);
                let shown = if segment.window == 0 { Shown::Warning } else { Shown::Working };
                is_plain_ack.then_some(shown)
            }
            Self::IpFlag if packet.dst.is_ipv6() => None,
            Self::IpFlag if core::mem::take(&mut packet.reserved_flag) => Some(Shown::Warning),
            // Figure 4.6.5.2-1 requires only a packet without the flag: with encryption nothing else is visible.
            Self::IpFlag => Some(Shown::Working),
        }
    }

    /// Marks a packet for the mobile host: `from_buffer` if it is released because the link works again.
    pub(crate) fn mark(self, packet: &mut Packet, from_buffer: bool) {
        if self == Self::IpFlag {
            packet.reserved_flag = from_buffer && matches!(packet.dst, IpAddr::V4(_));
        }
    }
}
