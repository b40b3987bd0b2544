//! CRC-32 as in IEEE 802.3 (clause 3.2.9), which detects every burst error of up to 32 bits.

const POLYNOMIAL: u32 = 0xedb8_8320;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = (index as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| crc >> 8 ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize])
}

/// The bytes before the checksum at the end, if it is correct.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    (crc32(body) == u32::from_be_bytes(*sum)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value that catalogues of CRCs give for CRC-32/ISO-HDLC.
    #[test]
    fn it_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
