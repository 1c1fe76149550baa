//! Verification of token signatures with `ring`, which TLS uses as well.
//!
//! `jsonwebtoken` calls a provider that is set once for the process. This provider verifies and
//! never signs: the server issues no JWTs.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Verifier},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _: &EncodingKey| -> Result<Box<dyn JwtSigner>, Error> {
        Err(ErrorKind::InvalidAlgorithm.into())
    },
    verifier_factory: |algorithm, key| {
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    // `jsonwebtoken` uses them only to convert keys into JWKs, which the server never does.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` verify signatures with `ring`, in the whole process.
pub(super) fn install() {
    // A second call fails, and changes nothing.
    let _ = PROVIDER.install_default();
}

/// Verifies signatures of one algorithm by one public key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let is_valid = match self.algorithm {
            Algorithm::RS256 => self.verify_rsa(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Algorithm::RS384 => self.verify_rsa(&RSA_PKCS1_2048_8192_SHA384, message, signature),
            Algorithm::RS512 => self.verify_rsa(&RSA_PKCS1_2048_8192_SHA512, message, signature),
            Algorithm::PS256 => self.verify_rsa(&RSA_PSS_2048_8192_SHA256, message, signature),
            Algorithm::PS384 => self.verify_rsa(&RSA_PSS_2048_8192_SHA384, message, signature),
            Algorithm::PS512 => self.verify_rsa(&RSA_PSS_2048_8192_SHA512, message, signature),
            Algorithm::ES256 => self.verify_bytes(&ECDSA_P256_SHA256_FIXED, message, signature),
            Algorithm::ES384 => self.verify_bytes(&ECDSA_P384_SHA384_FIXED, message, signature),
            Algorithm::EdDSA => self.verify_bytes(&ED25519, message, signature),
            // A published key is no secret, so no HMAC is accepted.
            _ => false,
        };
        is_valid.then_some(()).ok_or_else(signature::Error::new)
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl RingVerifier {
    fn verify_rsa(&self, how: &'static RsaParameters, message: &[u8], signature: &[u8]) -> bool {
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else { return false };
        // Some issuers publish a modulus with leading zeros, which `ring` refuses.
        let n = &n[n.iter().take_while(|byte| **byte == 0).count()..];
        RsaPublicKeyComponents { n, e: e.as_slice() }.verify(how, message, signature).is_ok()
    }

    fn verify_bytes(
        &self,
        how: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let key = self.key.try_get_as_bytes();
        key.is_ok_and(|key| UnparsedPublicKey::new(how, key).verify(message, signature).is_ok())
    }
}
