"""The batch inference job: files of prompts to files of answers, row for row."""
