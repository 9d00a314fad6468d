"""Chapter 06, the feed-forward network and the encoder."""

CHAPTER = "06_feed_forward"
