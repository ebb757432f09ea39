//! Reads the parameters of requests and notifications.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::rpc::{RpcError, code};

/// Reads parameters. Absent parameters count as `{}`.
///
/// # Errors
/// The parameters are an array, or do not fit the method.
pub fn read_params<P: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<P, RpcError> {
    let refused = |text: String| RpcError::new(code::INVALID_PARAMS, format!("{method}: {text}"));
    let text = params.map_or("{}", RawValue::get);
    if text.starts_with('[') {
        return Err(refused("the params must be an object, not an array".to_owned()));
    }
    serde_json::from_str(text).map_err(|error| refused(format!("invalid params: {error}")))
}
