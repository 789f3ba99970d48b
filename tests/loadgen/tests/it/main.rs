//! The generator against servers that misbehave in known ways.

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod server;
