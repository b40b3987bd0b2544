//! A perceptually uniform colour ramp.
//!
//! It is a helix in OKLab (B. Ottosson, "A perceptual color space for image processing", 2020): lightness falls steadily from yellow over
//! green and blue to violet while the chroma stays, so the perceived difference of two colours grows with the difference of their values.
//! Lightness alone distinguishes values for colour-blind readers and in grey print.

const LIGHTEST: f64 = 0.94;
const DARKEST: f64 = 0.32;
const CHROMA: f64 = 0.096;
const FIRST_HUE: f64 = 100.0;
const LAST_HUE: f64 = 300.0;

/// The colour of step `step` of 256, from light to dark, as 0xrrggbb.
pub(crate) fn color(step: u8) -> u32 {
    srgb(lab(step))
        .map(|part| (part.clamp(0.0, 1.0) * 255.0).round() as u32)
        .into_iter()
        .fold(0, |rgb, part| rgb << 8 | part)
}

/// Whether dark letters are readable on the colour.
pub(crate) fn is_light(step: u8) -> bool {
    lab(step)[0] > 0.58
}

fn lab(step: u8) -> [f64; 3] {
    let share = f64::from(step) / 255.0;
    let hue = (FIRST_HUE + share * (LAST_HUE - FIRST_HUE)).to_radians();
    [LIGHTEST + share * (DARKEST - LIGHTEST), CHROMA * hue.cos(), CHROMA * hue.sin()]
}

/// From OKLab to sRGB (IEC 61966-2-1), each from 0 to 1.
fn srgb([lightness, a, b]: [f64; 3]) -> [f64; 3] {
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    [
        4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short,
    ]
    .map(|part| if part <= 0.003_130_8 { 12.92 * part } else { 1.055 * part.powf(1.0 / 2.4) - 0.055 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_can_be_shown_and_steps_are_equal() {
        let mut steps = Vec::new();
        for step in 0..=255 {
            for part in srgb(lab(step)) {
                assert!((-0.002..=1.002).contains(&part), "{step}: {:?}", srgb(lab(step)));
            }
            if let Some(next) = step.checked_add(1) {
                let (here, there) = (lab(step), lab(next));
                steps.push((0..3).map(|axis| (here[axis] - there[axis]).powi(2)).sum::<f64>().sqrt());
            }
        }
        let (least, most) =
            steps.iter().fold((f64::MAX, 0.0_f64), |(least, most), step| (least.min(*step), most.max(*step)));
        assert!(most / least < 1.01);
    }

    #[test]
    fn greys_are_grey_and_white_is_white() {
        for part in srgb([1.0, 0.0, 0.0]) {
            assert!((part - 1.0).abs() < 1e-3);
        }
        assert!(is_light(0) && !is_light(255));
    }
}
