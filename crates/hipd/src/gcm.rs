//! AES-GCM by `ring`, in the processor's widest instructions.

use holdover_hip::esp::{Gcm, GcmProvider};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// The daemon's implementation of AES-GCM.
pub const RING: GcmProvider = GcmProvider::new(start);

fn start(key: &[u8; 16]) -> Option<Box<dyn Gcm>> {
    let key = UnboundKey::new(&AES_128_GCM, key).ok()?;
    Some(Box::new(Key(LessSafeKey::new(key))))
}

struct Key(LessSafeKey);

impl Gcm for Key {
    fn seal(&self, nonce: [u8; 12], associated: &[u8; 12], data: &mut [u8]) -> Option<[u8; 16]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(associated), data).ok()?;
        tag.as_ref().try_into().ok()
    }

    fn open(&self, nonce: [u8; 12], associated: &[u8; 12], data: &mut [u8]) -> Option<()> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(associated), data).ok().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Both implementations write the same bytes, open those of the other, and refuse damage.
        #[test]
        fn both_implementations_agree(
            key: [u8; 16], nonce: [u8; 12], associated: [u8; 12], plain in vec(any::<u8>(), 0..2000), at: usize, bit in 0..8_u8,
        ) {
            let both = [RING, GcmProvider::default()].map(|provider| provider.start(&key).unwrap());
            let sealed = both.each_ref().map(|gcm| {
                let mut data = plain.clone();
                let tag = gcm.seal(nonce, &associated, &mut data).unwrap();
                data.extend_from_slice(&tag);
                data
            });
            prop_assert_eq!(&sealed[0], &sealed[1]);
            for gcm in &both {
                let mut data = sealed[0].clone();
                prop_assert!(gcm.open(nonce, &associated, &mut data).is_some());
                prop_assert_eq!(&data[..plain.len()], &plain[..]);
                let mut damaged = sealed[0].clone();
                let at = at % damaged.len();
                damaged[at] ^= 1 << bit;
                prop_assert!(gcm.open(nonce, &associated, &mut damaged).is_none());
            }
        }
    }
}
