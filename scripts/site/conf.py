# SPDX-License-Identifier: MIT
"""Sphinx's configuration, for scripts/build-site."""

project = "gpualloc"
extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # samples with `...` in them
c_id_attributes = ["GA_API"]
toc_object_entries = False
smartquotes = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = "gpualloc"
html_show_copyright = False
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
