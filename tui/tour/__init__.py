"""The guided tour: stops that tell the story of ragged tensors on records of real runs."""
