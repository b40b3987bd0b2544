//! Received power in free space.

use core::fmt;

use crate::error::{ConfigError, check_positive};

/// A power in watts.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Watts(pub f64);

impl Watts {
    /// The power over one milliwatt, in decibels.
    pub fn dbm(self) -> f64 {
        10.0 * (self.0 * 1e3).log10()
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} dBm", self.dbm())
    }
}

/// A pair of transceivers in free space. All are alike, so that reception is symmetric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Radio {
    /// Transmitted power.
    pub transmit_power: Watts,
    /// Gain of the transmitting antenna, as a factor.
    pub transmit_gain: f64,
    /// Gain of the receiving antenna, as a factor.
    pub receive_gain: f64,
    /// Carrier frequency.
    pub frequency_hz: f64,
    /// Loss in the system, as a factor of at least 1.
    pub system_loss: f64,
    /// A frame with less power than this is not received.
    pub receive_threshold: Watts,
}

impl Radio {
    /// ns-2's default, the 914 MHz WaveLAN (24.5 dBm, antennas without gain), with the threshold for a range of
    /// `range_m` metres.
    pub fn wavelan(range_m: f64) -> Self {
        let mut radio = Self {
            transmit_power: Watts(0.281_838_15),
            transmit_gain: 1.0,
            receive_gain: 1.0,
            frequency_hz: 914e6,
            system_loss: 1.0,
            receive_threshold: Watts(0.0),
        };
        radio.receive_threshold = radio.received_power(range_m);
        radio
    }

    /// Friis's equation (Friis, "A note on a simple transmission formula", 1946): the power falls with the square of
    /// the distance. It does not hold within a wavelength or so; there the result is limited to the transmitted power.
    pub fn received_power(&self, distance_m: f64) -> Watts {
        let sent = self.transmit_power.0 * self.transmit_gain * self.receive_gain / self.system_loss;
        let wavelengths = distance_m / self.wavelength_m();
        let spread = 4.0 * core::f64::consts::PI * wavelengths;
        Watts((sent / (spread * spread)).min(sent))
    }

    /// The distance at which the received power falls to the threshold.
    pub fn range_m(&self) -> f64 {
        let sent = self.transmit_power.0 * self.transmit_gain * self.receive_gain / self.system_loss;
        self.wavelength_m() / (4.0 * core::f64::consts::PI) * (sent / self.receive_threshold.0).sqrt()
    }

    /// How far a power is above the threshold, as a share of it: 0.02 for 2 %. Negative below.
    pub fn margin(&self, power: Watts) -> f64 {
        power.0 / self.receive_threshold.0 - 1.0
    }

    fn wavelength_m(&self) -> f64 {
        const SPEED_OF_LIGHT_M_PER_S: f64 = 299_792_458.0;
        SPEED_OF_LIGHT_M_PER_S / self.frequency_hz
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_positive("radio: transmit power in W", self.transmit_power.0)?;
        check_positive("radio: transmit gain", self.transmit_gain)?;
        check_positive("radio: receive gain", self.receive_gain)?;
        check_positive("radio: frequency in Hz", self.frequency_hz)?;
        check_positive("radio: system loss", self.system_loss)?;
        check_positive("radio: receive threshold in W", self.receive_threshold.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_falls_with_the_square_of_the_distance_down_to_the_threshold_at_the_range() {
        let radio = Radio::wavelan(40.0);
        assert!((radio.range_m() - 40.0).abs() < 1e-9);
        let ratio = radio.received_power(10.0).0 / radio.received_power(20.0).0;
        assert!((ratio - 4.0).abs() < 1e-12);
        // By hand: wavelength 0.328 m, (0.328 / (4 pi 40))^2 * 0.2818 W = 1.2e-7 W.
        assert!((radio.received_power(40.0).0 - 1.2000e-7).abs() < 1e-11, "{}", radio.received_power(40.0).0);
        assert!((radio.received_power(40.0).dbm() - -39.208).abs() < 0.001);
        assert_eq!(radio.received_power(0.0), radio.transmit_power);
    }

    #[test]
    fn a_margin_of_two_percent_lies_where_the_inverse_square_puts_it() {
        let radio = Radio::wavelan(40.0);
        let margin = radio.margin(radio.received_power(40.0 / 1.02_f64.sqrt()));
        assert!((margin - 0.02).abs() < 1e-9, "{margin}");
    }
}
