//! The values that a case varies over, by the numbers of the conformance suite's enumerations.

use crate::text::message_types::{codec_name, compression_name, protocol_name};

macro_rules! axis {
    (
        $(#[$doc:meta])* $name:ident, $what:literal,
        { $($(#[$value_doc:meta])* $value:ident = $number:literal),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value = $number),*
        }

        impl $name {
            /// All values, by their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the value of a number.
            ///
            /// # Errors
            /// There is none.
            pub fn of_number(number: i32) -> Result<Self, UnknownValue> {
                let found = Self::ALL.iter().find(|value| value.number() == number);
                found.copied().ok_or(UnknownValue { axis: $what, number })
            }

            /// Returns the number of the value.
            #[must_use]
            pub fn number(self) -> i32 {
                self as i32
            }
        }
    };
}

/// A number that has no meaning on its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no {axis} {number}")]
pub struct UnknownValue {
    axis: &'static str,
    number: i32,
}

axis!(
    /// A version of HTTP.
    HttpVersion, "HTTP version", { Http1 = 1, Http2 = 2, Http3 = 3 }
);
axis!(
    /// A protocol of RPCs.
    Protocol, "protocol", { Connect = 1, Grpc = 2, GrpcWeb = 3 }
);
axis!(
    /// A format of messages.
    Codec, "codec", {
        Proto = 1,
        Json = 2,
        /// Deprecated: no case has it.
        Text = 3,
    }
);
axis!(
    /// A compression of messages.
    Compression, "compression", { Identity = 1, Gzip = 2, Br = 3, Zstd = 4, Deflate = 5, Snappy = 6 }
);
axis!(
    /// A kind of call.
    StreamType, "stream type", {
        Unary = 1, ClientStream = 2, ServerStream = 3, HalfDuplexBidi = 4, FullDuplexBidi = 5,
    }
);

impl StreamType {
    /// Returns whether a call has at most one response message.
    #[must_use]
    pub fn has_one_response(self) -> bool {
        match self {
            Self::Unary | Self::ClientStream => true,
            Self::ServerStream | Self::HalfDuplexBidi | Self::FullDuplexBidi => false,
        }
    }

    /// Returns the method that is called where a case names none.
    pub(crate) fn default_method(self) -> &'static str {
        match self {
            Self::Unary => "Unary",
            Self::ClientStream => "ClientStream",
            Self::ServerStream => "ServerStream",
            Self::HalfDuplexBidi | Self::FullDuplexBidi => "BidiStream",
        }
    }
}

/// A point of all axes. A suite has cases at those points that the configuration has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaseAxes {
    pub http_version: HttpVersion,
    pub protocol: Protocol,
    pub codec: Codec,
    pub compression: Compression,
    pub stream_type: StreamType,
    pub uses_tls: bool,
    pub uses_client_certs: bool,
    pub uses_connect_get: bool,
    pub uses_receive_limit: bool,
}

impl CaseAxes {
    /// Returns the components of a case's name that a suite does not fix: `HTTPVersion:2` and so on.
    pub(crate) fn components(&self, suite: &crate::message::Suite) -> Vec<String> {
        let mut components = Vec::new();
        if suite.relevant_http_versions.len() != 1 {
            components.push(format!("HTTPVersion:{}", self.http_version.number()));
        }
        if suite.relevant_protocols.len() != 1 {
            components.push(format!("Protocol:{}", protocol_name(self.protocol.number())));
        }
        if suite.relevant_codecs.len() != 1 {
            components.push(format!("Codec:{}", codec_name(self.codec.number())));
        }
        if suite.relevant_compressions.len() != 1 {
            components.push(format!("Compression:{}", compression_name(self.compression.number())));
        }
        if !suite.relies_on_tls {
            components.push(format!("TLS:{}", self.uses_tls));
        }
        components
    }
}
