"""What tests are made of: conformance kits for what users plug in, and fakes."""
