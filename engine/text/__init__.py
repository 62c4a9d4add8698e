"""Between text and token ids: tokenizers, chat templates, prompts, texts that grow token by token.

May import records and config.
"""
